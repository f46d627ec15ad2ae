//! Runs the binary in a pseudo-terminal. The test types keys and reads the screen.

use std::{
    io::{Read, Write},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::{Folder, eventually};

/// Number of the screen's rows.
const ROWS: u16 = 50;
/// Number of the screen's columns.
const COLUMNS: u16 = 100;
/// Number of lines that can be scrolled back.
const SCROLLBACK: usize = 2_000;
/// The escape sequence with which a program asks for the cursor position.
const CURSOR_QUERY: &[u8] = b"\x1b[6n";

/// A terminal in which the binary runs. Dropping it kills the process.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keyboard: Keyboard,
    output: Arc<Mutex<Output>>,
    master: Box<dyn MasterPty + Send>,
}

type Keyboard = Arc<Mutex<Box<dyn Write + Send>>>;

/// The output so far.
struct Output {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the binary with these arguments. Its home and working directory are the folder. Its
    /// environment has only TERM, USER, HOME and `more`.
    pub fn start(binary: &str, folder: &Folder, arguments: &[&str], more: &[(&str, &str)]) -> Self {
        let size = PtySize {
            rows: ROWS,
            cols: COLUMNS,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system()
            .openpty(size)
            .expect("the system has pseudo-terminals");
        let mut command = CommandBuilder::new(binary);
        command.args(arguments);
        command.env_clear();
        command.cwd(folder.path());
        command.env("HOME", folder.path());
        for (name, value) in [("TERM", "xterm-256color"), ("USER", "tester")]
            .iter()
            .chain(more)
        {
            command.env(name, value);
        }
        let child = pair
            .slave
            .spawn_command(command)
            .expect("the binary starts");
        let reader = pair
            .master
            .try_clone_reader()
            .expect("the terminal can be read");
        let keyboard: Keyboard = Arc::new(Mutex::new(
            pair.master
                .take_writer()
                .expect("the terminal can be written"),
        ));
        let screen = vt100::Parser::new(
            ROWS.try_into().expect("the number of rows fits"),
            COLUMNS.try_into().expect("the number of columns fits"),
            SCROLLBACK,
        );
        let output = Arc::new(Mutex::new(Output {
            screen,
            bytes: Vec::new(),
        }));
        thread::spawn({
            let (output, keyboard) = (Arc::clone(&output), Arc::clone(&keyboard));
            move || read_output(reader, &output, &keyboard)
        });
        Self {
            child,
            keyboard,
            output,
            master: pair.master,
        }
    }

    /// Types these keys.
    pub fn type_text(&self, keys: &str) {
        let mut keyboard = self.keyboard.lock().unwrap_or_else(PoisonError::into_inner);
        keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal accepts input");
        keyboard.flush().expect("the terminal accepts input");
    }

    /// Types this line and Enter.
    pub fn enter(&self, line: &str) {
        self.type_text(&format!("{line}\r"));
    }

    /// Pastes this text as terminals do: with carriage returns at line ends, and in brackets if the
    /// process has enabled bracketed paste.
    pub fn paste(&self, text: &str) {
        let text = text.replace('\n', "\r");
        let is_bracketed = self
            .output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen
            .screen()
            .bracketed_paste();
        self.type_text(&if is_bracketed {
            format!("\u{1b}[200~{text}\u{1b}[201~")
        } else {
            text
        });
    }

    /// The screen's lines without trailing blanks.
    pub fn screen(&self) -> String {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen
            .screen()
            .contents()
    }

    /// All output bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
            .clone()
    }

    /// The terminal's modes: bracketed paste and termios.
    pub fn modes(&self) -> String {
        let is_bracketed = self
            .output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen
            .screen()
            .bracketed_paste();
        format!(
            "pastes in brackets: {is_bracketed}, {:?}",
            self.master.get_termios().expect("the terminal has modes")
        )
    }

    /// Sends this signal to the process.
    pub fn signal(&self, name: &str) {
        let id = self.child.process_id().expect("it runs").to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .expect("`kill` is installed");
        assert!(sent.success());
    }

    /// Waits until the screen contains these words. Returns the screen.
    pub async fn wait_for_text(&self, words: &str) -> String {
        self.wait_for_screen(words, |screen| screen.contains(words))
            .await
    }

    /// Waits until the last line ends with this prompt and nothing is typed after it.
    pub async fn wait_for_prompt(&self, prompt: &str) -> String {
        let holds = |screen: &str| {
            screen
                .trim_end()
                .lines()
                .last()
                .is_some_and(|line| line.trim_end().ends_with(prompt))
        };
        self.wait_for_screen(prompt, holds).await
    }

    async fn wait_for_screen(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        // Shorter than the minute of `eventually`, so that the failure shows the screen.
        let waited = tokio::time::timeout(std::time::Duration::from_secs(50), async {
            eventually(what, async || holds(&self.screen())).await;
        });
        assert!(
            waited.await.is_ok(),
            "the screen never showed {what:?}:\n{}",
            self.screen()
        );
        self.screen()
    }

    /// Waits until the process exits. Returns its exit code.
    pub async fn wait_for_exit(&mut self) -> u32 {
        let mut code = None;
        let child = &mut self.child;
        eventually("the process ends", async || {
            code = child
                .try_wait()
                .expect("the process can be queried")
                .map(|status| status.exit_code());
            code.is_some()
        })
        .await;
        code.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
    }
}

/// Reads the output until the process exits, and answers queries of the cursor position, as
/// terminals do.
fn read_output(
    mut reader: impl Read,
    output: &Mutex<Output>,
    keyboard: &Mutex<Box<dyn Write + Send>>,
) {
    let mut piece = [0; 4096];
    // The number of bytes up to the end of the last query.
    let mut answered = 0;
    while let Ok(read @ 1..) = reader.read(&mut piece) {
        let mut answers = Vec::new();
        {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in &piece[..read] {
                output.bytes.push(*byte);
                output.screen.process(&[*byte]);
                if output.bytes[answered..].ends_with(CURSOR_QUERY) {
                    answered = output.bytes.len();
                    let (row, column) = output.screen.screen().cursor_position();
                    answers.push(format!("\u{1b}[{};{}R", row + 1, column + 1));
                }
            }
        }
        let mut keyboard = keyboard.lock().unwrap_or_else(PoisonError::into_inner);
        for answer in answers {
            // A process that has exited does not read the answer.
            let _ = keyboard.write_all(answer.as_bytes());
        }
    }
}
