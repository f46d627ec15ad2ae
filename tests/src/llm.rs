//! A real model behind a real server, where the script that starts one is at hand: beside the real conversations, in the
//! folder `llm`. Tests that use it say that they skip.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::Data;

/// A running server; stopped when dropped, also when a test fails.
pub struct Llm {
    /// Where its APIs begin: `http://127.0.0.1:PORT/v1`.
    pub url: String,
    script: PathBuf,
    folder: PathBuf,
    port: u16,
}

/// Starts a server whose model sees `window` tokens; None, and a line that says why, where that is not possible.
pub fn start_llm(window: u32) -> Option<Llm> {
    let script = Data::find()?.path("../llm/start-llm.sh");
    if !script.is_file() {
        println!("skipped: the script that starts a model is not here");
        return None;
    }
    // What is installed there survives the run: the first one takes a minute, the others ten seconds.
    let folder = std::env::temp_dir().join("anneal-tests").join("llm");
    let port = free_port();
    let run = Command::new(&script)
        .arg(&folder)
        .arg(port.to_string())
        .env("LLM_CTX", window.to_string())
        .stdin(Stdio::null())
        .output();
    // From here on the server is stopped, whatever happens.
    let mut llm = Llm { url: String::new(), script, folder, port };
    match run {
        Ok(run) if run.status.success() => {
            let said = String::from_utf8_lossy(&run.stdout);
            said.lines().last().unwrap_or_default().trim().clone_into(&mut llm.url);
            Some(llm)
        }
        Ok(run) => {
            println!("skipped: no model could be started: {}", String::from_utf8_lossy(&run.stderr));
            None
        }
        Err(e) => {
            println!("skipped: the script that starts a model does not run: {e}");
            None
        }
    }
}

/// A port that nobody uses now. Another process may take it before the server does: then the script says so.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("some port is free");
    listener.local_addr().expect("it has an address").port()
}

impl Drop for Llm {
    fn drop(&mut self) {
        let stop = Command::new(&self.script)
            .arg("stop")
            .arg(&self.folder)
            .arg(self.port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Err(e) = stop {
            println!("the model's server on port {} was not stopped: {e}", self.port);
        }
        // The port is another one each time: what the server leaves behind would pile up.
        for left in ["conf", "log"] {
            let _ = std::fs::remove_file(self.folder.join(format!("server-{}.{left}", self.port)));
        }
    }
}
