//! The binary at a terminal of the test's own: what is typed goes in, what a person would see comes out.

use std::{
    io::{Read, Write},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::{Folder, eventually};

/// Rows and columns, and rows that are remembered above them.
const ROWS: u16 = 50;
const COLUMNS: u16 = 100;
const SCROLLBACK: usize = 2_000;
/// What a program sends to learn where the cursor is.
const WHERE_IS_THE_CURSOR: &[u8] = b"\x1b[6n";

/// A terminal in which the binary runs. The process is killed when this is dropped.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keyboard: Keyboard,
    seen: Arc<Mutex<Seen>>,
    pair: Box<dyn MasterPty + Send>,
}

type Keyboard = Arc<Mutex<Box<dyn Write + Send>>>;

/// What came out so far.
struct Seen {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the binary with these arguments; its home is the folder, and the environment is `more` alone.
    pub fn start(binary: &str, folder: &Folder, arguments: &[&str], more: &[(&str, &str)]) -> Self {
        let size = PtySize { rows: ROWS, cols: COLUMNS, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("the system has pseudo-terminals");
        let mut command = CommandBuilder::new(binary);
        command.args(arguments);
        command.env_clear();
        command.cwd(folder.path());
        command.env("HOME", folder.path());
        for (name, value) in [("TERM", "xterm-256color"), ("USER", "tester")].iter().chain(more) {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("the binary starts");
        let output = pair.master.try_clone_reader().expect("can be read");
        let keyboard: Keyboard = Arc::new(Mutex::new(pair.master.take_writer().expect("can be written")));
        let screen = vt100::Parser::new(
            ROWS.try_into().expect("there are rows"),
            COLUMNS.try_into().expect("there are columns"),
            SCROLLBACK,
        );
        let seen = Arc::new(Mutex::new(Seen { screen, bytes: Vec::new() }));
        thread::spawn({
            let (seen, keyboard) = (Arc::clone(&seen), Arc::clone(&keyboard));
            move || watch(output, &seen, &keyboard)
        });
        Self { child, keyboard, seen, pair: pair.master }
    }

    /// Types this.
    pub fn types(&self, keys: &str) {
        let mut keyboard = self.keyboard.lock().unwrap_or_else(PoisonError::into_inner);
        keyboard.write_all(keys.as_bytes()).expect("the terminal takes it");
        keyboard.flush().expect("the terminal takes it");
    }

    /// Types this and Enter.
    pub fn enters(&self, line: &str) {
        self.types(&format!("{line}\r"));
    }

    /// Pastes this, as terminals do: its lines ended by carriage returns, in brackets if the process has asked for them.
    pub fn pastes(&self, text: &str) {
        let text = text.replace('\n', "\r");
        let is_bracketed = self.seen.lock().unwrap_or_else(PoisonError::into_inner).screen.screen().bracketed_paste();
        self.types(&if is_bracketed { format!("\u{1b}[200~{text}\u{1b}[201~") } else { text });
    }

    /// The screen as it is, line by line, without blanks at the ends.
    pub fn screen(&self) -> String {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).screen.screen().contents()
    }

    /// Every byte that came out.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// How the terminal treats what is typed and what is printed.
    pub fn modes(&self) -> String {
        let is_bracketed = self.seen.lock().unwrap_or_else(PoisonError::into_inner).screen.screen().bracketed_paste();
        format!("pastes in brackets: {is_bracketed}, {:?}", self.pair.get_termios().expect("it has modes"))
    }

    /// Sends the process this signal.
    pub fn signals(&self, name: &str) {
        let id = self.child.process_id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Waits until the screen holds these words; returns it.
    pub async fn shows(&self, words: &str) -> String {
        self.shows_that(words, |screen| screen.contains(words)).await
    }

    /// Waits until the last line ends with this prompt, with nothing typed after it.
    pub async fn prompts(&self, prompt: &str) -> String {
        let holds =
            |screen: &str| screen.trim_end().lines().last().is_some_and(|line| line.trim_end().ends_with(prompt));
        self.shows_that(prompt, holds).await
    }

    async fn shows_that(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let waited = tokio::time::timeout(std::time::Duration::from_secs(50), async {
            eventually(what, async || holds(&self.screen())).await;
        });
        assert!(waited.await.is_ok(), "the screen never showed {what:?}:\n{}", self.screen());
        self.screen()
    }

    /// Waits for its end; its exit code.
    pub async fn ended(&mut self) -> u32 {
        let mut code = None;
        let child = &mut self.child;
        eventually("the process ends", async || {
            code = child.try_wait().expect("can be asked").map(|status| status.exit_code());
            code.is_some()
        })
        .await;
        code.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

/// Reads what comes until the process has gone, and answers where the cursor is, as terminals do.
fn watch(mut output: impl Read, seen: &Mutex<Seen>, keyboard: &Mutex<Box<dyn Write + Send>>) {
    let mut piece = [0; 4096];
    let mut asked = 0;
    while let Ok(read @ 1..) = output.read(&mut piece) {
        let mut answers = Vec::new();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in &piece[..read] {
                seen.bytes.push(*byte);
                seen.screen.process(&[*byte]);
                if seen.bytes[asked..].ends_with(WHERE_IS_THE_CURSOR) {
                    asked = seen.bytes.len();
                    let (row, column) = seen.screen.screen().cursor_position();
                    answers.push(format!("\u{1b}[{};{}R", row + 1, column + 1));
                }
            }
        }
        let mut keyboard = keyboard.lock().unwrap_or_else(PoisonError::into_inner);
        for answer in answers {
            // A process that has gone does not need it any more.
            let _ = keyboard.write_all(answer.as_bytes());
        }
    }
}
