//! A headless Chromium, driven over its DevTools protocol through a pair of pipes: messages are JSON, each ended by a zero byte
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where Chromium reads commands and writes answers.
const ITS_ENDS: [i32; 2] = [3, 4];
const PATIENCE: Duration = Duration::from_secs(40);

pub struct Browser {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
    next: u64,
    session: Option<String>,
    /// Errors in scripts.
    pub exceptions: Vec<String>,
    loaded: bool,
}

impl Browser {
    /// Starts one; `None` where there is no Chromium.
    pub fn start(profile: &Path) -> Option<Self> {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let theirs_fd = theirs.as_raw_fd();
        // SAFETY: a plain system call. Away from the numbers that it is to have.
        let end = unsafe { libc::fcntl(theirs_fd, libc::F_DUPFD_CLOEXEC, 10) };
        assert!(end >= 10, "no descriptor");
        let mut command = Command::new("chromium");
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "--window-size=1280,1500"])
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
        // SAFETY: it is ours, and nobody else has it.
        unsafe { libc::close(end) };
        let child = child.ok()?;
        ours.set_read_timeout(Some(PATIENCE)).expect("can be set");
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
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": page, "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Runtime.enable", json!({}));
        Some(browser)
    }

    /// Does something; what came of it.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("Chromium listens");
        loop {
            let answer = self.hear();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn hear(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = self.from.read_until(0, &mut bytes);
        assert!(read.is_ok_and(|n| n > 0), "Chromium has gone silent");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => {
                self.exceptions.push(message["params"].to_string());
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until it is there.
    pub fn open(&mut self, path: &Path) {
        self.loaded = false;
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({"url": url}));
        while !self.loaded {
            self.hear();
        }
    }

    /// What an expression of JavaScript comes to.
    pub fn ask(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Where the middle of an element is, scrolled to.
    pub fn place(&mut self, selector: &str) -> (f64, f64) {
        let found = self.ask(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}});
                const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        let number = |at: usize| found[at].as_f64().expect("a place");
        (number(0), number(1))
    }

    /// Does something with the mouse: `mouseMoved`, `mousePressed`, `mouseReleased`.
    pub fn mouse(&mut self, what: &str, (x, y): (f64, f64)) {
        let pressed = what != "mouseMoved";
        let event = json!({
            "type": what, "x": x, "y": y, "clickCount": i32::from(pressed),
            "button": if pressed { "left" } else { "none" },
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    pub fn click(&mut self, selector: &str) {
        let place = self.place(selector);
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
