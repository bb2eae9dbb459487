//! The console in a headless Chromium, driven by its DevTools protocol: what pages say in the browser's own console,
//! whether they fit, where the keyboard leads, and pictures of them.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use base64::Engine as _;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    killed::Killed,
    sandbox::{PATIENCE, until},
};

/// A phone, half a screen, and a screen.
pub const WIDTHS: [u32; 3] = [390, 900, 1440];
pub const THEMES: [&str; 2] = ["light", "dark"];

pub struct Browser {
    _process: Killed,
    runtime: tokio::runtime::Runtime,
    socket: WebSocketStream<TcpStream>,
    session: Option<String>,
    asked: u64,
    /// Errors that the page or its scripts caused.
    errors: Vec<String>,
}

impl Browser {
    /// None where there is no Chromium.
    pub fn start(dir: &Path) -> Option<Self> {
        let profile = dir.join("chromium");
        let started = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args([
                "--ignore-certificate-errors",
                "--no-first-run",
                "--disable-extensions",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("SKIPPED: there is no chromium, so nobody looks at the console");
            return None;
        };
        let process = Killed(process);
        let (port, path) = until("Chromium does not listen", || {
            let reported = fs::read_to_string(profile.join("DevToolsActivePort")).map_err(|error| error.to_string())?;
            let (port, path) = reported.trim().split_once('\n').ok_or("half a file")?;
            Ok((port.parse::<u16>().map_err(|error| error.to_string())?, path.to_owned()))
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let socket = runtime.block_on(async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            client_async(format!("ws://127.0.0.1:{port}{path}"), stream).await.unwrap().0
        });
        let mut browser = Self { _process: process, runtime, socket, session: None, asked: 0, errors: Vec::new() };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser.ask("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        Some(browser)
    }

    /// Asks, and notes errors that are told until the answer comes.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut asked = json!({"id": self.asked, "method": method, "params": params});
        if let Some(session) = &self.session {
            asked["sessionId"] = json!(session);
        }
        let Self { runtime, socket, .. } = self;
        runtime.block_on(socket.send(Message::text(asked.to_string()))).unwrap();
        loop {
            let Self { runtime, socket, .. } = &mut *self;
            let next = runtime.block_on(async { tokio::time::timeout(PATIENCE, socket.next()).await });
            let message = next.expect("Chromium does not answer").expect("it ended").unwrap();
            let Ok(reported) = serde_json::from_str::<Value>(message.to_text().unwrap_or_default()) else { continue };
            if reported["id"] == self.asked {
                assert!(reported["error"].is_null(), "{method}: {reported}");
                return reported["result"].clone();
            }
            self.note_error(&reported);
        }
    }

    fn note_error(&mut self, reported: &Value) {
        let params = &reported["params"];
        let is_error = match reported["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => params["type"] == "error",
            "Log.entryAdded" => params["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(params.to_string());
        }
    }

    /// What a script evaluates to.
    pub fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    fn until_there(&mut self, path: &str) {
        let began = Instant::now();
        let script = "[document.readyState, location.pathname]";
        loop {
            let is = self.evaluate(script);
            if is == json!(["complete", path]) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{path} does not come: {is}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    pub fn open(&mut self, address: &str, path: &str) {
        self.ask("Page.navigate", json!({"url": format!("{address}{path}")}));
        self.until_there(path);
    }

    /// By the form, as a person does it.
    pub fn log_in(&mut self, address: &str, token: &str) {
        self.ask("Network.clearBrowserCookies", json!({}));
        self.open(address, "/login");
        self.evaluate(&format!("document.getElementById('token').value = {token:?}"));
        self.evaluate("document.querySelector('form.login button').click()");
        self.until_there("/");
    }

    pub fn until_shown(&mut self, words: &[&str]) {
        let began = Instant::now();
        loop {
            let text = self.evaluate("document.body.innerText");
            let text = text.as_str().unwrap_or_default();
            if words.iter().all(|word| text.contains(word)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {words:?} in\n{text}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }

    pub fn look(&mut self, width: u32, theme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// By how much the page is wider than the window; what scrolls in a frame of its own does not count.
    pub fn measure_overflow(&mut self) -> i64 {
        let script = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.evaluate(script).as_i64().unwrap()
    }

    /// The words of what has focus after each tab, from the beginning of the page on.
    pub fn press_tabs(&mut self, count: usize) -> Vec<String> {
        self.evaluate("document.activeElement.blur()");
        (0..count)
            .map(|_| {
                for kind in ["rawKeyDown", "keyUp"] {
                    let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
                    self.ask("Input.dispatchKeyEvent", key);
                }
                self.evaluate("document.activeElement.textContent").as_str().unwrap_or_default().to_owned()
            })
            .collect()
    }

    /// Errors since it was asked last.
    pub fn take_errors(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.errors)
    }

    /// The page from its top on, as a PNG.
    pub fn draw(&mut self, width: u32, most_height: u32) -> Vec<u8> {
        let height = self.evaluate("document.documentElement.scrollHeight").as_u64().unwrap().min(most_height.into());
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let asked = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let drawn = self.ask("Page.captureScreenshot", asked);
        base64::engine::general_purpose::STANDARD.decode(drawn["data"].as_str().unwrap()).unwrap()
    }
}
