//! PgBouncer in transaction mode in front of a PostgreSQL, if PgBouncer is installed.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::Stdio,
};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{Folder, eventually};

/// Number of PgBouncer's sessions with PostgreSQL: far fewer than anneal's connections, so that
/// transactions must share them.
const SESSIONS: usize = 10;

/// PgBouncer in front of a database. Killed on drop.
pub struct Pooler {
    /// The database's URL through PgBouncer.
    pub url: String,
    port: u16,
    settings: PathBuf,
    running: Option<Child>,
    _folder: Folder,
}

impl Pooler {
    /// Starts PgBouncer in front of the database of this URL. None if PgBouncer is not
    /// installed.
    pub async fn start(database: &str) -> Option<Self> {
        if !Self::is_available().await {
            return None;
        }
        let port = unused_port();
        let (login, server_and_name) = database
            .trim_start_matches("postgres://")
            .split_once('@')
            .expect("a login");
        let (user, password) = login.split_once(':').expect("a password");
        let (server, database_name) = server_and_name.split_once('/').expect("a database");
        let server_port = server.rsplit(':').next().expect("a port");
        let folder = Folder::new();
        let users = folder.file("users.txt", &format!("\"{user}\" \"{password}\"\n"));
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {SESSIONS}\nmax_client_conn = 1000\nserver_login_retry = 1\n\
             ignore_startup_parameters = extra_float_digits\n",
            users.display()
        );
        let settings = folder.file("pgbouncer.ini", &settings);
        let chmod = Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(folder.path())
            .status()
            .await;
        assert!(chmod.expect("`chmod` is installed").success());
        let url = format!("postgres://{login}@127.0.0.1:{port}/{database_name}");
        let mut pooler = Self {
            url,
            port,
            settings,
            running: None,
            _folder: folder,
        };
        pooler.start_process().await;
        Some(pooler)
    }

    /// Whether PgBouncer is installed.
    pub async fn is_available() -> bool {
        let ran = Command::new("pgbouncer")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        ran.await.is_ok_and(|status| status.success())
    }

    /// Kills PgBouncer with SIGKILL and starts it again.
    pub async fn crash(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().await.expect("it runs until it is killed");
        }
        self.start_process().await;
    }

    async fn start_process(&mut self) {
        let mut command = Command::new("pgbouncer");
        // PgBouncer refuses to run as root, and reads its files as the user that it switches to.
        if is_root().await {
            command.args(["--user", "postgres"]);
        }
        let running = command
            .arg(&self.settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        self.running = Some(running.expect("the process starts"));
        eventually("PgBouncer listens", async || {
            TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
        })
        .await;
    }
}

/// A free port below the range from which the system chooses ports, so that no other test gets it.
/// The process id spreads the first ports that concurrent tests try.
fn unused_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..32_000).find(is_free).expect("some port is free")
}

async fn is_root() -> bool {
    let id = Command::new("id")
        .arg("-u")
        .output()
        .await
        .expect("`id` is installed");
    id.stdout.trim_ascii() == b"0"
}
