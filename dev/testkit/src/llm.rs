//! A real model behind a real server. A script in the folder `llm` next to the real conversations
//! (`ANNEAL_TEST_DATA`) starts it. If the script is missing or fails, a test prints that it is
//! skipped; where test data is required, the test fails.

use std::{
    fs::File,
    net::TcpListener,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anneal_test_data::{find_test_data, skip_without_test_data};

/// The ports of model servers.
const PORTS: RangeInclusive<u16> = 18_800..=18_899;

/// A running model server. It is stopped on drop, also when a test fails.
pub struct Llm {
    /// The base URL of the server's APIs: `http://127.0.0.1:PORT/v1`.
    pub url: String,
    script: PathBuf,
    folder: PathBuf,
    port: ReservedPort,
}

/// Starts a server whose model has a window of `window` tokens. Returns None, and prints why, if
/// that is not possible; panics where test data is required.
#[track_caller]
pub fn start_llm(window: u32) -> Option<Llm> {
    let script = find_test_data("../llm/start-llm.sh")?;
    // The installation in this folder survives the run: the first start takes a minute, later ones
    // ten seconds.
    let folder = std::env::temp_dir().join("anneal-tests").join("llm");
    let port = ReservedPort::reserve(&folder);
    let run = Command::new(&script)
        .arg(&folder)
        .arg(port.number.to_string())
        .env("LLM_CTX", window.to_string())
        .stdin(Stdio::null())
        .output();
    // `Llm` is created before the result is checked, so that its drop stops the server in any case.
    let mut llm = Llm {
        url: String::new(),
        script,
        folder,
        port,
    };
    match run {
        Ok(run) if run.status.success() => {
            let output = String::from_utf8_lossy(&run.stdout);
            output
                .lines()
                .last()
                .unwrap_or_default()
                .trim()
                .clone_into(&mut llm.url);
            Some(llm)
        }
        Ok(run) => {
            let output = String::from_utf8_lossy(&run.stderr);
            skip_without_test_data(&format!("no model could be started: {output}"));
            None
        }
        Err(e) => {
            skip_without_test_data(&format!("the script that starts a model does not run: {e}"));
            None
        }
    }
}

/// A port below those that the kernel gives to sockets without one, so that no other socket of the
/// tests takes it before the server does, or is taken for the server. No other test reserves it
/// while this value lives.
struct ReservedPort {
    number: u16,
    /// Locked until it is closed.
    _lock: File,
}

impl ReservedPort {
    /// Reserves a port with a file of its own in `folder`.
    fn reserve(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).expect("the folder for the model can be created");
        let reserved = PORTS.into_iter().find_map(|number| {
            let path = folder.join(format!("port-{number}.lock"));
            let lock = File::create(path).expect("a file can be created");
            let is_free =
                lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok();
            is_free.then_some(Self {
                number,
                _lock: lock,
            })
        });
        reserved.expect("one of the ports is free")
    }
}

impl Drop for Llm {
    fn drop(&mut self) {
        let stop = Command::new(&self.script)
            .arg("stop")
            .arg(&self.folder)
            .arg(self.port.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Err(e) = stop {
            println!(
                "the model's server on port {} was not stopped: {e}",
                self.port.number
            );
        }
        // The next server on this port has settings of its own.
        for extension in ["conf", "log"] {
            let _ = std::fs::remove_file(
                self.folder
                    .join(format!("server-{}.{extension}", self.port.number)),
            );
        }
    }
}
