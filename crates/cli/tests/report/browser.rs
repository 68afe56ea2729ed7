//! A headless Chromium, driven by its DevTools protocol through a pair of pipes. Messages are JSON,
//! each ended by a zero byte (<https://chromedevtools.github.io/devtools-protocol/>).

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// File descriptors from which Chromium reads commands and to which it writes answers.
const ITS_ENDS: [i32; 2] = [3, 4];
const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage \
    --hide-scrollbars --remote-debugging-pipe --window-size=1280,1500";
const PATIENCE: Duration = Duration::from_secs(40);

pub struct Browser {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
    next: u64,
    session: Option<String>,
    /// Exceptions in scripts.
    pub exceptions: Vec<String>,
    loaded: bool,
}

impl Browser {
    /// Starts Chromium; `None` where it is not installed.
    pub fn start(profile: &Path) -> Option<Self> {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let theirs_fd = theirs.as_raw_fd();
        // SAFETY: a plain system call. The copy's number is outside the numbers that Chromium uses.
        let end = unsafe { libc::fcntl(theirs_fd, libc::F_DUPFD_CLOEXEC, 10) };
        assert!(end >= 10, "no descriptor");
        let mut command = Command::new("chromium");
        command
            .args(OPTIONS.split_whitespace())
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for own in ITS_ENDS {
                    if libc::dup2(end, own) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn();
        // SAFETY: this test opened it, and nothing else uses it.
        unsafe { libc::close(end) };
        let child = child.ok()?;
        ours.set_read_timeout(Some(PATIENCE)).expect("the timeout can be set");
        let mut browser = Self {
            child,
            from: BufReader::new(ours.try_clone().expect("a second handle")),
            to: ours,
            next: 0,
            session: None,
            exceptions: Vec::new(),
            loaded: false,
        };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().expect("targets").clone();
        let page = targets.iter().find(|target| target["type"] == "page");
        let page = page.expect("a page")["targetId"].clone();
        let target = json!({"targetId": page, "flatten": true});
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the message can be sent to Chromium");
        loop {
            let answer = self.receive();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = self.from.read_until(0, &mut bytes);
        assert!(read.is_ok_and(|n| n > 0), "Chromium no longer answers");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).expect("the message is JSON");
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => {
                self.exceptions.push(message["params"].to_string());
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, path: &Path) {
        self.loaded = false;
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({"url": url}));
        while !self.loaded {
            self.receive();
        }
    }

    /// Value of a JavaScript expression.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        let went_well = answer["exceptionDetails"].is_null();
        assert!(went_well, "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The middle of an element, after scrolling it into view.
    pub fn center_of(&mut self, selector: &str) -> (f64, f64) {
        let found = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}});
                const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        let number = |at: usize| found[at].as_f64().expect("a coordinate");
        (number(0), number(1))
    }

    /// Sends a mouse event: `mouseMoved`, `mousePressed`, `mouseReleased`.
    pub fn mouse(&mut self, what: &str, (x, y): (f64, f64)) {
        let pressed = what != "mouseMoved";
        let event = json!({
            "type": what, "x": x, "y": y, "clickCount": i32::from(pressed),
            "button": if pressed { "left" } else { "none" },
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    pub fn click(&mut self, selector: &str) {
        let place = self.center_of(selector);
        for what in ["mouseMoved", "mousePressed", "mouseReleased"] {
            self.mouse(what, place);
        }
    }

    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from);
        self.mouse("mousePressed", from);
        self.mouse("mouseMoved", to);
        self.mouse("mouseReleased", to);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
