"use strict";
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const $ = id => document.getElementById(id);
  const LEFT = 122, RIGHT = 168;
  const VIEWS = { coverage: "coverage", walks: "page walks", huge: "huge pages" };
  // From light to dark, so that it reads in greyscale.
  const SCALE = [[236, 241, 246], [189, 211, 230], [107, 160, 205], [40, 104, 172], [8, 48, 107], [3, 18, 44]];
  const LINES = {
    resident: { stroke: "#111111", dash: "", mark: "circle" },
    "huge pages": { stroke: "#2468b0", dash: "9 4", mark: "square" },
    bloat: { stroke: "#b0581c", dash: "2 3", mark: "triangle" },
  };
  // A recording may name an event "constructor", which an object would have.
  const EVENTS = new Map([["promoted", "up"], ["recovered", "down"], ["refused", "cross"]]);
  const mapped = report.processes.filter(p => p.map && p.map.columns.length && p.map.addresses.length);
  const whole = { t0: 0, t1: Math.max(report.length_s, 0.001) };
  const state = { process: mapped[0] || report.processes[0] || null, view: null, rows: null, ...whole };

  const bytes = n => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (n >= size) return (n / size).toFixed(n / size < 10 ? 1 : 0) + " " + unit;
    return n ? Math.round(n) + " bytes" : "0";
  };
  const time = s => {
    if (s < 60) return (s < 10 && s % 1 ? s.toFixed(1) : Math.round(s)) + " s";
    const m = Math.floor(s / 60), rest = Math.round(s % 60);
    if (s < 3600) return m + " min" + (rest ? " " + rest + " s" : "");
    return Math.floor(s / 3600) + " h " + (m % 60) + " min";
  };
  const percent = v => v == null ? "–" : (v < 10 && v % 1 ? v.toFixed(1) : Math.round(v)) + " %";
  const count = n => Math.round(n).toLocaleString("en");
  const hex = a => a.toString(16);
  const hasCoverage = p => p.source !== "probed" && p.source !== "population";

  const make = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text != null) node.textContent = text;
    return node;
  };
  const row = (cells, classes = []) => {
    const tr = document.createElement("tr");
    cells.forEach((text, i) => {
      const td = document.createElement("td");
      td.textContent = text;
      td.className = classes[i] || "";
      tr.append(td);
    });
    return tr;
  };
  const ticks = (from, to, wanted, steps) => {
    const span = (to - from) / wanted;
    let step = steps && steps.find(s => s >= span);
    if (!step) {
      const unit = 10 ** Math.floor(Math.log10(span || 1));
      step = [1, 2, 5, 10].map(n => n * unit).find(s => s >= span);
    }
    const all = [];
    for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-6; at += step) all.push(at);
    return all;
  };
  const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];

  // ---- tables

  function tables() {
    document.title = "HawkEye: " + (state.process ? state.process.command + " on " : "") + report.host;
    $("title").textContent = mapped.length === 1
      ? `${mapped[0].command} (process ${mapped[0].pid}) on ${report.host}` : `Memory of processes on ${report.host}`;
    const began = report.began_unix_s == null ? "simulated time" : "from " + new Date(report.began_unix_s * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
    $("facts").textContent = [
      time(report.length_s), began, report.kernel && "Linux " + report.kernel,
      report.policy === "none" ? "HawkEye promoted nothing" : "policy " + report.policy,
      report.unfinished && "unfinished: its last minute may be missing",
      report.bad_rows && report.bad_rows + " invalid rows left out",
    ].filter(Boolean).join(" · ");
    const names = ["process", "pid", "resident", "peak", "huge", "shared", "bloat", "overhead", "max overhead", "coverage", "CPU", "promoted", "split", "refused"];
    const head = document.createElement("tr");
    names.forEach((name, i) => {
      const th = document.createElement("th");
      th.textContent = name;
      if (i) th.className = "n";
      head.append(th);
    });
    $("processes").tHead.append(head);
    const right = names.map((_, i) => i ? "n" : "");
    report.processes.slice(0, 50).forEach((p, index) => {
      const tr = row([p.command, p.pid, bytes(p.rss_end_bytes), bytes(p.rss_peak_bytes), bytes(p.huge_end_bytes), bytes(p.shared_end_bytes),
        p.bloat_end_bytes == null ? "–" : bytes(p.bloat_end_bytes), percent(p.overhead_mean_percent), percent(p.overhead_max_percent),
        hasCoverage(p) ? percent(p.coverage_mean_percent) : "–", p.cpu_cores_mean == null ? "–" : p.cpu_cores_mean.toFixed(2) + " cores",
        count(p.promoted), count(p.recovered), count(p.refused)], right);
      tr.dataset.pid = p.pid;
      tr.dataset.index = index;
      if (mapped.includes(p) || mapped.length === 0) {
        tr.className = "choosable";
        tr.tabIndex = 0;
        const choose = () => { state.process = p; state.rows = null; state.view = null; draw(); };
        tr.addEventListener("click", choose);
        tr.addEventListener("keydown", e => { if (e.key === "Enter") choose(); });
      }
      $("processes").tBodies[0].append(tr);
    });
    const more = Math.max(report.processes.length - 50, 0) + report.processes_left_out;
    if (more) $("processes").tBodies[0].append(row([`and ${count(more)} more`]));
    const { private: own, shared, files } = report.memory;
    const leftOut = report.memory.shared_regions_left_out;
    $("kinds-of-memory").hidden = shared.files === 0 && leftOut === 0;
    const kind = (name, m, where, mappers) =>
      $("memory-kinds").tBodies[0].append(row([name, bytes(m.resident_bytes), bytes(m.huge_bytes), where, mappers], ["", "n", "n", "", ""]));
    kind("private", own, "", "");
    kind("shared", shared, count(shared.files) + (shared.files === 1 ? " file" : " files"), count(shared.processes) + " in all");
    for (const f of files) kind("file", f, `device ${f.device} inode ${f.inode}`, f.pids.join(", "));
    if (leftOut) $("memory-kinds").tBodies[0].append(row(["not counted", "", "", count(leftOut) + " further regions of shared memory", ""]));
    const all = report.decisions;
    $("decisions").hidden = all.total === 0;
    $("decisions-total").textContent = `${count(all.total)} in all, by event and reason.`;
    for (const kind of all.kinds) $("kinds").tBodies[0].append(row([count(kind.count), kind.event, kind.last_reason], ["n"]));
    for (const d of [...all.latest].reverse())
      $("latest").tBodies[0].append(row([time(d.at_s), d.pid == null ? "" : d.pid, d.address == null ? "" : hex(d.address), d.event, d.reason], ["n", "n", "code"]));
  }

  // ---- scales

  let width = 0;
  const inner = () => width - LEFT - RIGHT;
  const x = t => LEFT + (t - state.t0) / (state.t1 - state.t0) * inner();
  const timeAt = px => state.t0 + (px - LEFT) / inner() * (state.t1 - state.t0);
  const rows = () => state.rows || [0, state.process.map.addresses.length];

  function shade(share) {
    const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1), i = Math.min(Math.floor(at), SCALE.length - 2);
    return SCALE[i].map((c, n) => Math.round(c + (SCALE[i + 1][n] - c) * (at - i)));
  }

  function frame(chart, height, title, labelled) {
    const svg = chart.querySelector("svg");
    svg.replaceChildren();
    svg.setAttribute("height", height);
    const bottom = height - 22;
    svg.append(make("text", { x: LEFT, y: 14, class: "head" }, title));
    for (const t of ticks(state.t0, state.t1, 8, TIMES)) {
      if (chart.id !== "map") svg.append(make("line", { x1: x(t), x2: x(t), y1: 22, y2: bottom, class: "grid" }));
      if (labelled) svg.append(make("text", { x: x(t), y: height - 6, "text-anchor": "middle" }, time(t)));
    }
    svg.append(make("rect", { x: LEFT, y: 22, width: inner(), height: bottom - 22, class: "frame" }));
    return { svg, top: 22, bottom };
  }

  // ---- the map

  const cellOf = (map, view, cell) => {
    if (map.huge_percent[cell] == null) return null;
    if (view === "huge") return map.huge_percent[cell] / 100;
    if (view === "coverage") return map.coverage_percent[cell] / 100;
    const most = state.mostWalks;
    return most ? Math.log1p(map.walks_per_s[cell]) / Math.log1p(most) : 0;
  };

  function drawMap() {
    const chart = $("map"), p = state.process, map = p && p.map;
    chart.hidden = !mapped.includes(p);
    if (chart.hidden) return;
    state.mostWalks = map.walks_per_s.reduce((a, b) => Math.max(a, b), 0);
    const possible = Object.keys(VIEWS).filter(v => v === "huge" || (v === "coverage" ? hasCoverage(p) : state.mostWalks > 0));
    if (!possible.includes(state.view)) state.view = possible[0];
    $("views").replaceChildren(...possible.map(v => {
      const b = document.createElement("button");
      b.type = "button"; b.id = "view-" + v; b.textContent = VIEWS[v];
      b.setAttribute("aria-pressed", v === state.view);
      b.addEventListener("click", () => { state.view = v; draw(); });
      return b;
    }));
    const what = { coverage: "share of base pages accessed in a sampling window", walks: "page walks per second", huge: "share of regions that are huge" };
    const height = 360, { svg, top, bottom } = frame(chart, height, `${VIEWS[state.view]}: ${what[state.view]}, by address and time`, true);
    const n = map.addresses.length, [r0, r1] = rows(), canvas = chart.querySelector("canvas");
    const w = Math.max(Math.round(inner()), 1), h = bottom - top;
    Object.assign(canvas.style, { left: LEFT + "px", top: top + "px", width: w + "px", height: h + "px" });
    canvas.width = w; canvas.height = h;
    const paint = canvas.getContext("2d");
    paint.fillStyle = "#fff";
    paint.fillRect(0, 0, w, h);
    const cellHeight = h / (r1 - r0);
    map.columns.forEach((column, c) => {
      if (!column.windows || column.to_s < state.t0 || column.from_s > state.t1) return;
      const left = x(column.from_s) - LEFT, right = x(column.to_s) - LEFT;
      for (let r = r0; r < r1; r++) {
        const share = cellOf(map, state.view, c * n + r);
        if (share == null) continue;
        paint.fillStyle = `rgb(${shade(share)})`;
        const y = h - (r - r0 + 1) * cellHeight;
        paint.fillRect(Math.floor(left), Math.floor(y), Math.ceil(right) - Math.floor(left), Math.ceil(y + cellHeight) - Math.floor(y));
      }
    });
    const y = r => bottom - (r - r0) * h / (r1 - r0);
    const step = Math.max(Math.ceil((r1 - r0) / 8), 1);
    for (let r = r0; r < r1; r += step)
      svg.append(make("text", { x: LEFT - 8, y: y(r + .5) + 4, "text-anchor": "end", class: "mono" }, hex(map.addresses[r])));
    // What the shades mean.
    const most = state.view === "walks" ? count(state.mostWalks) + " /s" : "100 %";
    for (let i = 0; i <= 20; i++)
      svg.append(make("rect", { x: width - RIGHT + 20, y: top + (20 - i) * 6, width: 18, height: 6, fill: `rgb(${shade(i / 20)})` }));
    svg.append(make("text", { x: width - RIGHT + 46, y: top + 9 }, most), make("text", { x: width - RIGHT + 46, y: top + 126 }, "0"));
    svg.append(make("text", { x: width - RIGHT + 20, y: top + 150 }, "white: no data"));
    marks(svg, p, y, r0, r1, top);
    hover(chart, (px, py) => {
      const t = timeAt(px), c = map.columns.findIndex(c => c.windows && t >= c.from_s && t <= c.to_s);
      const r = Math.min(Math.max(Math.floor(r0 + (bottom - py) / h * (r1 - r0)), r0), r1 - 1);
      const lines = [time(t) + " · " + hex(map.addresses[r]) + " (" + bytes(map.row_bytes) + ")"];
      const cell = c * n + r;
      if (c < 0 || map.huge_percent[cell] == null) lines.push("no data here");
      else {
        if (hasCoverage(p)) lines.push("coverage " + percent(map.coverage_percent[cell]));
        const huge = map.huge_percent[cell];
        lines.push("huge " + percent(huge) + (huge && hasCoverage(p) ? ": a huge page shows whether it was accessed, not how much" : ""));
        if (state.mostWalks) lines.push(count(map.walks_per_s[cell]) + " page walks per second");
        if (map.columns[c].windows > 1) lines.push("mean of " + map.columns[c].windows + " sampling windows");
      }
      return lines.join("\n");
    }, { top, bottom, rowAt: py => r0 + (bottom - py) / h * (r1 - r0) });
  }

  const GLYPHS = {
    up: (x, y, s) => `M${x},${y - s}L${x + s},${y + s * .8}L${x - s},${y + s * .8}Z`,
    down: (x, y, s) => `M${x},${y + s}L${x + s},${y - s * .8}L${x - s},${y - s * .8}Z`,
    cross: (x, y, s) => `M${x - s},${y - s}L${x + s},${y + s}M${x + s},${y - s}L${x - s},${y + s}`,
    diamond: (x, y, s) => `M${x},${y - s}L${x + s},${y}L${x},${y + s}L${x - s},${y}Z`,
  };

  function marks(svg, p, y, r0, r1, top) {
    const used = new Set();
    if ($("show-marks").checked) {
      for (const mark of report.decisions.marks) {
        if (mark.process == null ? mark.pid != null : report.processes[mark.process] !== p) continue;
        if (mark.at_s < state.t0 || mark.at_s > state.t1) continue;
        if (mark.row != null && (mark.row < r0 || mark.row >= r1)) continue;
        const shape = EVENTS.get(mark.event) || "diamond";
        used.add(mark.event);
        const size = 3 + Math.min(Math.log2(mark.count + 1) * .6, 4);
        const at = mark.row == null ? top + 8 : y(mark.row + .5);
        const path = make("path", { d: GLYPHS[shape](x(mark.at_s), at, size), class: "mark", "data-event": mark.event });
        path.dataset.tip = `${time(mark.at_s)} · ${mark.event}${mark.count > 1 ? `, ${count(mark.count)} near here; the first:` : ""}\n`
          + (mark.address == null ? "" : hex(mark.address) + ": ") + mark.reason;
        svg.append(path);
      }
    }
    [...used].forEach((event, i) => {
      const at = top + 176 + i * 18;
      svg.append(make("path", { d: GLYPHS[EVENTS.get(event) || "diamond"](width - RIGHT + 28, at - 4, 5), class: "mark" }));
      svg.append(make("text", { x: width - RIGHT + 46, y: at }, event));
    });
  }

  // ---- lines

  function drawLines(id, height, title, series, label, labelled) {
    const chart = $(id), there = series.filter(s => s.data && s.data.at_s.length);
    chart.hidden = there.length === 0;
    if (chart.hidden) return;
    const { svg, top, bottom } = frame(chart, height, title, labelled);
    const inside = s => s.data.value.filter((_, i) => s.data.at_s[i] >= state.t0 && s.data.at_s[i] <= state.t1);
    const most = there.reduce((m, s) => inside(s).reduce((a, b) => Math.max(a, b), m), 0);
    const high = most > 0 ? most * 1.12 : 1;
    const y = v => bottom - v / high * (bottom - top);
    const unit = series[0].bytes ? [2 ** 30, 2 ** 20, 2 ** 10, 1].find(u => high >= u) : 1;
    for (const v of ticks(0, high / unit, 3)) {
      svg.append(make("line", { x1: LEFT, x2: LEFT + inner(), y1: y(v * unit), y2: y(v * unit), class: "grid" }));
      svg.append(make("text", { x: LEFT - 8, y: y(v * unit) + 4, "text-anchor": "end" }, label(v * unit)));
    }
    there.forEach((s, i) => {
      const look = s.look, places = [];
      s.data.at_s.forEach((t, k) => {
        if (t >= state.t0 && t <= state.t1) places.push([x(t), y(s.data.value[k])]);
      });
      if (places.length > 1)
        svg.append(make("path", { d: "M" + places.map(p => p.map(v => v.toFixed(1)).join(",")).join("L"), fill: "none", stroke: look.stroke, "stroke-width": 1.8, "stroke-dasharray": look.dash }));
      const every = Math.max(Math.ceil(places.length / 14), 1);
      places.forEach((at, k) => { if (k % every === 0) svg.append(symbol(look, at[0], at[1])); });
      const ly = top + 10 + i * 20;
      svg.append(make("line", { x1: width - RIGHT + 16, x2: width - RIGHT + 44, y1: ly, y2: ly, stroke: look.stroke, "stroke-width": 1.8, "stroke-dasharray": look.dash }));
      svg.append(symbol(look, width - RIGHT + 30, ly), make("text", { x: width - RIGHT + 52, y: ly + 4 }, s.name));
    });
    hover(chart, px => {
      const t = timeAt(px), lines = [time(t)];
      for (const s of there) {
        let near = 0;
        s.data.at_s.forEach((at, i) => { if (Math.abs(at - t) < Math.abs(s.data.at_s[near] - t)) near = i; });
        lines.push(s.name + " " + label(s.data.value[near]));
      }
      return lines.join("\n");
    }, { top, bottom });
  }

  function symbol(look, cx, cy) {
    const style = { fill: "#fff", stroke: look.stroke, "stroke-width": 1.5 };
    if (look.mark === "circle") return make("circle", { cx, cy, r: 2.6, ...style });
    if (look.mark === "square") return make("rect", { x: cx - 2.6, y: cy - 2.6, width: 5.2, height: 5.2, ...style });
    return make("path", { d: GLYPHS.up(cx, cy, 3.2), ...style });
  }

  // ---- looking closer

  function hover(chart, say, place) {
    chart.onmousemove = e => {
      const box = chart.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
      for (const line of document.querySelectorAll(".cross")) line.remove();
      const tip = $("tip"), mark = e.target.dataset && e.target.dataset.tip;
      if (px < LEFT || px > LEFT + inner() || py < place.top || py > place.bottom) { tip.hidden = true; return; }
      for (const other of document.querySelectorAll(".chart:not([hidden])")) {
        const svg = other.querySelector("svg");
        svg.append(make("line", { x1: px, x2: px, y1: 22, y2: +svg.getAttribute("height") - 22, class: "cross" }));
      }
      tip.textContent = mark || say(px, py);
      tip.hidden = false;
      const beside = px > width / 2 ? e.pageX - tip.offsetWidth - 14 : e.pageX + 14;
      Object.assign(tip.style, { left: Math.max(beside, 4) + "px", top: e.pageY + 14 + "px" });
      if (drag) stretch(px, py);
    };
    chart.onmouseleave = () => {
      $("tip").hidden = true;
      for (const line of document.querySelectorAll(".cross")) line.remove();
    };
    chart.onmousedown = e => {
      const box = chart.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
      if (e.button || px < LEFT || px > LEFT + inner()) return;
      drag = { chart, place, px, py, node: make("rect", { class: "drag" }) };
      chart.querySelector("svg").append(drag.node);
      e.preventDefault();
    };
  }

  let drag = null;
  const rowsOf = py => {
    const { place, py: from } = drag;
    if (!place.rowAt || Math.abs(py - from) < 24) return null;
    const clamp = v => Math.min(Math.max(v, place.top), place.bottom);
    const [low, high] = [clamp(Math.max(py, from)), clamp(Math.min(py, from))].map(place.rowAt);
    const [r0, r1] = rows();
    return [Math.max(Math.floor(low), r0), Math.min(Math.max(Math.ceil(high), Math.floor(low) + 1), r1)];
  };
  function stretch(px, py) {
    const { place, px: from, py: start, node } = drag, tall = rowsOf(py);
    const to = Math.min(Math.max(px, LEFT), LEFT + inner());
    const [top, bottom] = tall ? [Math.min(start, py), Math.max(start, py)] : [place.top, place.bottom];
    for (const [key, value] of Object.entries({ x: Math.min(from, to), width: Math.abs(to - from), y: top, height: bottom - top })) node.setAttribute(key, value);
  }
  addEventListener("mouseup", e => {
    if (!drag) return;
    const box = drag.chart.getBoundingClientRect();
    const px = Math.min(Math.max(e.clientX - box.left, LEFT), LEFT + inner());
    const chosen = [timeAt(Math.min(px, drag.px)), timeAt(Math.max(px, drag.px))], tall = rowsOf(e.clientY - box.top);
    const far = Math.abs(px - drag.px) > 5;
    drag.node.remove();
    drag = null;
    if (!far) return;
    [state.t0, state.t1] = chosen;
    if (tall) state.rows = tall;
    draw();
  });
  const reset = () => { Object.assign(state, whole); state.rows = null; draw(); };
  $("reset").addEventListener("click", reset);
  $("charts").addEventListener("dblclick", e => { if (e.target.closest(".chart")) reset(); });
  $("show-marks").addEventListener("change", () => draw());

  function draw() {
    width = $("charts").clientWidth;
    const p = state.process, m = report.machine, zoomed = state.rows || state.t0 !== whole.t0 || state.t1 !== whole.t1;
    $("reset").disabled = !zoomed;
    $("range").textContent = zoomed ? `${time(state.t0)} to ${time(state.t1)}` : "";
    for (const tr of $("processes").tBodies[0].rows) tr.setAttribute("aria-selected", !!p && report.processes[tr.dataset.index] === p);
    drawMap();
    if (p) {
      drawLines("overhead", 130, "overhead of address translation", [{ name: "overhead", data: p.overhead_percent, look: LINES.resident }], percent);
      drawLines("memory", 170, "memory of the process", [
        { name: "resident", data: p.rss_bytes, look: LINES.resident, bytes: true },
        { name: "huge pages", data: p.huge_bytes, look: LINES["huge pages"] },
        { name: "bloat (estimate)", data: p.bloat_bytes, look: LINES.bloat }], bytes);
    }
    const used = { at_s: m.used_bytes.at_s, value: m.used_bytes.value.map(v => v * 100 / (m.total_bytes || 1)) };
    drawLines("machine", 150, "the machine", [
      { name: "memory in use", data: used, look: LINES.resident },
      { name: "manager's CPU", data: m.manager_cpu_percent, look: LINES["huge pages"] },
      { name: "tasks waiting", data: m.pressure_percent, look: LINES.bloat }], percent, true);
  }

  tables();
  draw();
  addEventListener("resize", draw);
})();
