//! The process of ChromeDriver. Chromium's processes are in its process group, which is killed as a
//! whole.

use std::{
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::Folder;

/// ChromeDriver on a port that it has chosen.
pub(super) struct Driver {
    url: String,
    process: Child,
    /// How many profiles were made.
    profiles: AtomicU32,
    /// Chromium's profiles.
    folder: Folder,
}

impl Driver {
    /// Starts ChromeDriver. None if it or Chromium is not installed.
    pub(super) async fn start() -> Option<Self> {
        let chromium = Command::new("chromium")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !chromium.await.is_ok_and(|status| status.success()) {
            return None;
        }
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let output = process.stdout.take().expect("it is a pipe");
        let mut lines = BufReader::new(output).lines();
        let port = loop {
            let line = lines.next_line().await.expect("text");
            let line = line.expect("ChromeDriver names its port before it ends");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // It goes on writing; nobody may find a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self {
            url: format!("http://127.0.0.1:{port}"),
            process,
            profiles: AtomicU32::new(0),
            folder: Folder::new(),
        })
    }

    /// ChromeDriver's URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The path of a profile that does not exist yet.
    pub(super) fn new_profile(&self) -> String {
        let number = self.profiles.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("profile-{number}"));
        path.display().to_string()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Chromium's processes would outlive ChromeDriver.
        if let Some(group) = self.process.id() {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", "--", &format!("-{group}")])
                .status();
        }
    }
}
