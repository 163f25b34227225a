//! A browser: Debian's Chromium, headless, by its own driver.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource as _, KeyAction, KeyActions},
    wd::{Capabilities, WebDriverCompatibleCommand},
};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::support::servers::{daemon::Daemon, home::Home, port, programs::find, until_some};

/// A browser with a profile of its own. Both it and its driver end with the
/// value.
pub(super) struct Browser {
    pub page: Client,
    driver: Option<Daemon>,
    /// Profile, caches and the driver's log.
    _home: Home,
}

/// How a page is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub scheme: &'static str,
    pub width: u32,
}

pub(super) const PHONE: u32 = 360;
pub(super) const DESK: u32 = 1_280;

pub(super) const VIEWS: [View; 4] = [
    View {
        scheme: "light",
        width: DESK,
    },
    View {
        scheme: "dark",
        width: DESK,
    },
    View {
        scheme: "light",
        width: PHONE,
    },
    View {
        scheme: "dark",
        width: PHONE,
    },
];

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = if self.width == PHONE { "phone" } else { "desk" };
        write!(f, "{device}-{}", self.scheme)
    }
}

impl Browser {
    pub(super) async fn open() -> Self {
        Self::with(&[]).await
    }

    /// One that runs no script of a page.
    pub(super) async fn without_script() -> Self {
        Self::with(&[("profile.managed_default_content_settings.javascript", 2)]).await
    }

    async fn with(preferences: &[(&str, u32)]) -> Self {
        let home = Home::new();
        let port = port::free();
        let chromedriver = find("chromedriver");
        let arguments = [
            OsStr::new("-c"),
            OsStr::new(TOGETHER),
            chromedriver.as_os_str(),
            OsStr::new(&port.to_string()),
        ]
        .map(OsStr::to_owned);
        let driver = Daemon::start(&home, Path::new("/bin/sh"), arguments);
        let profile = home.path().join("profile");
        let preferences: serde_json::Map<_, _> = preferences
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let options = json!({
            "binary": find("chromium"),
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                format!("--user-data-dir={}", profile.display()),
            ],
            "prefs": preferences,
        });
        let capabilities = Capabilities::from_iter([("goog:chromeOptions".to_owned(), options)]);
        let url = format!("http://127.0.0.1:{port}");
        let page = until_some("the browser is there", async || {
            let mut client =
                ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
            client
                .capabilities(capabilities.clone())
                .connect(&url)
                .await
                .ok()
        });
        Self {
            page: page.await,
            driver: Some(driver),
            _home: home,
        }
    }

    pub(super) async fn goes_to(&self, url: &str) {
        self.page.goto(url).await.expect("the page loads");
    }

    /// Colours and width as a device would have them.
    pub(super) async fn looks_as(&self, view: View) {
        let media = json!({
            "media": "screen",
            "features": [{"name": "prefers-color-scheme", "value": view.scheme}],
        });
        self.devtools("Emulation.setEmulatedMedia", media).await;
        let height = if view.width == PHONE { 740 } else { 900 };
        let metrics = json!({
            "width": view.width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": view.width == PHONE,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    pub(super) async fn asks(&self, script: &str) -> Value {
        let answer = self.page.execute(script, Vec::new()).await;
        answer.expect("the script runs")
    }

    pub(super) async fn presses(&self, key: fantoccini::key::Key) {
        let key = char::from(key);
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys
            .then(KeyAction::Down { value: key })
            .then(KeyAction::Up { value: key });
        self.page
            .perform_actions(keys)
            .await
            .expect("the key is pressed");
    }

    pub(super) async fn types(&self, text: &str) {
        let focused = self
            .page
            .active_element()
            .await
            .expect("something has the focus");
        focused.send_keys(text).await.expect("it takes text");
    }

    pub(super) async fn heading(&self) -> String {
        let heading = self.page.find(Locator::Css("h1")).await.expect("a heading");
        heading.text().await.expect("a text")
    }

    /// The whole page as a picture, under the folder for what tests leave.
    pub(super) async fn draws(&self, name: &str) {
        let shot = self
            .devtools(
                "Page.captureScreenshot",
                json!({"captureBeyondViewport": true, "format": "png"}),
            )
            .await;
        let data = shot["data"].as_str().expect("a picture");
        let picture = STANDARD.decode(data).expect("a picture");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("{name}.png")), picture).expect("a file");
    }

    async fn devtools(&self, command: &'static str, parameters: Value) -> Value {
        let command = DevTools {
            command,
            parameters,
        };
        self.page
            .issue_cmd(command)
            .await
            .expect("the browser obeys")
    }

    pub(super) async fn closes(mut self) {
        let closed = tokio::time::timeout(Duration::from_secs(10), self.page.clone().close()).await;
        drop(closed);
        self.driver.take();
    }
}

/// Runs the driver, and beside it, as nobody's child, who ends the browser when
/// the driver has gone, however that was: a driver that is killed leaves its
/// browser behind. Whose browser it is tells its profile.
const TOGETHER: &str = r#"
browsers() {
    grep -lsz -- "--user-data-dir=$PWD/profile" /proc/[0-9]*/cmdline | cut -d/ -f3
}
watch() {
    while grep -qs "^State:[[:space:]]*[^Z[:space:]]" /proc/$$/status; do
        sleep 0.2
    done
    for browser in $(browsers); do
        kill -KILL "$browser"
    done
    rm -rf "$PWD"
}
( watch & )
exec "$0" --port="$1"
"#;

/// A command of Chromium's own.
#[derive(Debug)]
struct DevTools {
    command: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(
        &self,
        base: &Url,
        session: Option<&str>,
    ) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!(
            "session/{}/goog/cdp/execute",
            session.unwrap_or_default()
        ))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        let body = json!({"cmd": self.command, "params": self.parameters});
        (Method::POST, Some(body.to_string()))
    }
}
