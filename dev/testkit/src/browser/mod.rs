//! A real browser, driven as a person uses it: Debian's Chromium, without a window.
//!
//! - `driver`: the process of ChromeDriver, which starts Chromium.
//! - `page`: what a person does with a page, and reads on it.
//! - `command`: commands that are Chromium's own.
//! - `key`: keys that write no character.
//! - `network`: which addresses the page has asked, and which errors the browser has reported.
//! - `axe`: looks for violations of the accessibility guidelines.

mod axe;
mod command;
mod driver;
pub mod key;
mod network;
mod page;

use fantoccini::{ClientBuilder, wd::Capabilities};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::{TestApp, skip_outside_gate};
use driver::Driver;
pub use page::BrowserPage;

/// Starts the browsers of one test. Its processes are killed on drop.
pub struct Browser {
    driver: Driver,
}

/// The window of a browser, and what its user has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Width of the window in CSS pixels.
    pub width: u32,
    /// Height of the window in CSS pixels.
    pub height: u32,
    /// Whether the system asks for dark colours.
    pub dark: bool,
    /// Whether scripts run.
    pub scripts: bool,
}

impl Look {
    /// A telephone.
    pub const NARROW: Self = Self::of(390, 844);
    /// A laptop.
    pub const WIDE: Self = Self::of(1440, 900);
    /// A 4K screen.
    pub const HUGE: Self = Self::of(3840, 2160);

    /// A window of this size, with light colours and scripts.
    pub const fn of(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            dark: false,
            scripts: true,
        }
    }

    /// The same window with dark colours.
    #[must_use]
    pub const fn dark(self) -> Self {
        Self { dark: true, ..self }
    }

    /// The same window without scripts.
    #[must_use]
    pub const fn without_scripts(self) -> Self {
        Self {
            scripts: false,
            ..self
        }
    }

    /// The looks with which a scenario runs: two in the gate, every combination of three widths
    /// and two colours in `make nightly`.
    pub fn all() -> Vec<Self> {
        let wide = Self::WIDE.dark();
        let gate = vec![Self::NARROW, wide];
        let rest = [
            Self::NARROW.dark(),
            Self::WIDE,
            Self::HUGE,
            Self::HUGE.dark(),
        ];
        let nightly = gate.iter().copied().chain(rest).collect();
        crate::gate_or_nightly(gate, nightly)
    }
}

impl Browser {
    /// Starts ChromeDriver. None, and a line that says so, if no browser is installed; in the gate
    /// this fails.
    pub async fn start() -> Option<Self> {
        let Some(driver) = Driver::start().await else {
            skip_outside_gate(
                "there is no chromium; scripts/debian.sh chromium-driver installs it",
            );
            return None;
        };
        Some(Self { driver })
    }

    /// Opens a path of the app's server in a Chromium of its own, with an empty profile. Two pages
    /// are two people.
    pub async fn open(&self, app: &TestApp, path: &str, look: Look) -> BrowserPage {
        self.open_at(&format!("http://{}", app.addresses.http), path, look)
            .await
    }

    /// Opens a path of this origin (`http://127.0.0.1:8080`, without a slash at the end).
    pub async fn open_at(&self, origin: &str, path: &str, look: Look) -> BrowserPage {
        let profile = self.driver.new_profile();
        let session = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(&profile))
            .connect(self.driver.url())
            .await
            .expect("Chromium starts");
        let page = BrowserPage::new(session, origin, look).await;
        page.visit(path).await;
        page
    }
}

/// The settings of Chromium. It asks no server of its maker, keeps nothing, and reports every
/// request and every error.
fn capabilities(profile: &str) -> Capabilities {
    let chrome = json!({
        "args": [
            "--headless=new",
            // Tests run in containers, as root.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-breakpad",
            "--disable-gpu",
            "--disable-sync",
            "--hide-scrollbars",
            "--no-default-browser-check",
            "--no-first-run",
            "--password-store=basic",
            format!("--user-data-dir={profile}"),
        ],
    });
    let all: [(&str, Value); 2] = [
        ("goog:chromeOptions", chrome),
        (
            "goog:loggingPrefs",
            json!({ "performance": "ALL", "browser": "ALL" }),
        ),
    ];
    all.map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
