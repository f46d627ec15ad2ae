//! SDKs in other languages whose protocols the server speaks, as scripts/sdks.sh installed them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use crate::missing_tool::skip_outside_gate;

/// An installed SDK, which runs programs that use it.
pub enum Sdk {
    /// The interpreter of the virtual environment with `openai` and `openai-agents`.
    Python(PathBuf),
    /// The folder with a package of npm and those that it needs.
    JavaScript(PathBuf),
}

impl Sdk {
    /// OpenAI's client and Agents SDK for Python. Returns None, and prints that the test is
    /// skipped, if they are not installed; panics in the gate.
    pub fn python() -> Option<Self> {
        find_installed("python").map(|folder| Self::Python(folder.join("bin/python")))
    }

    /// The package for JavaScript in this folder of `examples/`, likewise.
    pub fn javascript(package: &str) -> Option<Self> {
        find_installed(package).map(Self::JavaScript)
    }

    /// A command that runs this file. The machine's proxies are not used.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match self {
            Self::Python(interpreter) => {
                let mut command = Command::new(interpreter);
                command.arg("-B").arg(program);
                command
            }
            Self::JavaScript(folder) => {
                let text = fs::read_to_string(program).expect("the program exists");
                let mut command = Command::new("node");
                // A program that is an argument finds its packages in the working folder.
                command.args(["--input-type=module", "--eval", &text, "--"]);
                command.current_dir(folder);
                command
            }
        };
        command
            .env("NO_PROXY", "*")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command of [`Self::command`] to its end, which must be a success. Returns its output.
    /// When it prints the line `left`, `on_left` runs, and then the command gets a line.
    pub async fn run(mut command: Command, on_left: impl AsyncFnOnce()) -> String {
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("is piped");
        let mut lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut stderr = child.stderr.take().expect("is piped");
        let (mut errors, mut output) = (String::new(), String::new());
        let mut on_left = Some(on_left);
        let read_lines = async {
            while let Some(line) = lines.next_line().await.expect("is text") {
                output += &line;
                output.push('\n');
                if line == "left"
                    && let Some(on_left) = on_left.take()
                {
                    on_left().await;
                    // A program that does not read its input may have ended.
                    let _ = stdin.write_all(b"go on\n").await;
                }
            }
        };
        let ((), read) = tokio::join!(read_lines, stderr.read_to_string(&mut errors));
        read.expect("is text");
        let status = child.wait().await.expect("the program ends");
        assert!(status.success(), "{errors}\n{output}");
        output
    }
}

fn find_installed(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../.tools/sdks")
        .join(name);
    // The script writes this file last.
    if folder.join("made_of").is_file() {
        return Some(folder);
    }
    skip_outside_gate(&format!(
        "the SDK {name} is not installed (scripts/sdks.sh .tools/sdks installs it)"
    ));
    None
}
