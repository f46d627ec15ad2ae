//! The proxy between anneal and PostgreSQL. It forwards everything and recognizes the messages that
//! commit. It can close the connection before such a message arrives, or after it was executed and
//! before its answer is delivered. It can also stall open connections, and change statements for a
//! sabotage.

use std::{
    io,
    str::FromStr as _,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::postgres::PgConnectOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::AbortHandle,
    time::sleep,
};

use super::{
    postgres_protocol::{self, Effect, Frame, Session},
    sabotage::Sabotage,
};

/// Of this many commits, `Shared::cut` are cut and `Shared::slow` are delayed, on average.
const THOUSAND: u32 = 1_000;
/// The delay of a commit that is delayed.
const COMMIT_DELAY: Duration = Duration::from_millis(40);
/// The time from the answer to an append until its commit, if a sabotage answers early.
const EARLY_ANSWER_LEAD: Duration = Duration::from_millis(50);

/// The proxy. Dropping it closes its connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    target: AtomicU16,
    /// Commits per thousand at which the connection is closed.
    cut: AtomicU32,
    /// Commits per thousand that are delayed.
    slow: AtomicU32,
    random: Mutex<fastrand::Rng>,
    faults: watch::Sender<ConnectionFault>,
    counts: Counts,
    sabotage: OnceLock<&'static Sabotage>,
}

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    cut_before: AtomicU64,
    cut_after: AtomicU64,
}

/// Counts of commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Commits {
    /// Commits that were forwarded or cut.
    pub total: u64,
    /// Commits that were cut before they arrived.
    pub cut_before: u64,
    /// Commits that were cut after they were executed.
    pub cut_after: u64,
}

/// The fault of the connections that are open when the fault is sent. Connections that are opened
/// later have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionFault {
    Cut,
    Silent,
}

/// The fault of a commit.
enum CommitFault {
    None,
    Delay,
    CutBefore,
    CutAfter,
}

impl Proxy {
    /// A proxy to this port. Its choices follow from the seed.
    pub async fn start(target: u16, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("some port is free");
        let port = listener.local_addr().expect("the socket is bound").port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            cut: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            faults: watch::Sender::new(ConnectionFault::Cut),
            counts: Counts::default(),
            sabotage: OnceLock::new(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self {
            port,
            shared,
            accepting,
        }
    }

    /// Applies a sabotage to the migrated database of this URL. Returns the proxy that changes its
    /// statements, and the URL of the database through it.
    pub async fn to_sabotaged_database(url: &str, sabotage: &'static Sabotage) -> (Self, String) {
        sabotage.apply(url).await;
        let options = PgConnectOptions::from_str(url).expect("a URL of a database");
        let port = options.get_port();
        let proxy = Self::start(port, 0).await;
        proxy.sabotage(sabotage);
        let through_proxy = format!("@127.0.0.1:{}/", proxy.port());
        let through = url.replace(&format!("@127.0.0.1:{port}/"), &through_proxy);
        (proxy, through)
    }

    /// The proxy's own port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Forwards new connections to this port.
    pub fn set_target(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// Sets at how many commits per thousand the connection is closed (`cut`), and how many are
    /// delayed (`slow`).
    pub fn disturb(&self, cut: u32, slow: u32) {
        self.shared.cut.store(cut, Ordering::SeqCst);
        self.shared.slow.store(slow, Ordering::SeqCst);
    }

    /// Applies this sabotage's changes of statements, from the next statement on, for as long as
    /// the proxy runs.
    pub(super) fn sabotage(&self, sabotage: &'static Sabotage) {
        let set = self.shared.sabotage.set(sabotage);
        assert!(set.is_ok(), "a proxy has at most one sabotage");
    }

    /// Stalls the open connections: they stay open, but no byte passes. New connections work.
    pub fn fall_silent(&self) {
        self.shared.faults.send_replace(ConnectionFault::Silent);
    }

    /// Closes all open connections, including stalled ones. New connections work.
    pub fn cut_all(&self) {
        self.shared.faults.send_replace(ConnectionFault::Cut);
    }

    /// The counts so far.
    pub fn commits(&self) -> Commits {
        let counts = &self.shared.counts;
        Commits {
            total: counts.commits.load(Ordering::SeqCst),
            cut_before: counts.cut_before.load(Ordering::SeqCst),
            cut_after: counts.cut_after.load(Ordering::SeqCst),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut_all();
        self.accepting.abort();
    }
}

impl Shared {
    /// The message with the sabotage's change, if it has one for this statement.
    fn rewrite(&self, frame: Frame) -> Frame {
        let rewritten = self.sabotage.get().and_then(|sabotage| {
            let text = sabotage.rewrite(&frame.statement()?)?;
            Some(frame.with_statement(&text))
        });
        rewritten.unwrap_or(frame)
    }

    fn answers_early(&self) -> bool {
        self.sabotage
            .get()
            .is_some_and(|sabotage| sabotage.answers_early())
    }

    fn draw_commit_fault(&self) -> CommitFault {
        self.counts.commits.fetch_add(1, Ordering::SeqCst);
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let (cut, slow) = (
            self.cut.load(Ordering::SeqCst),
            self.slow.load(Ordering::SeqCst),
        );
        match random.u32(0..THOUSAND) {
            drawn if drawn < cut && random.bool() => {
                self.counts.cut_before.fetch_add(1, Ordering::SeqCst);
                CommitFault::CutBefore
            }
            drawn if drawn < cut => {
                self.counts.cut_after.fetch_add(1, Ordering::SeqCst);
                CommitFault::CutAfter
            }
            drawn if drawn < cut + slow => CommitFault::Delay,
            _ => CommitFault::None,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let (shared, mut faults) = (Arc::clone(&shared), shared.faults.subscribe());
        faults.mark_unchanged();
        tokio::spawn(async move {
            // If nothing listens on the target port, the connection is closed.
            let Ok(server) =
                TcpStream::connect(("127.0.0.1", shared.target.load(Ordering::SeqCst))).await
            else {
                return;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let mut connection = ProxiedConnection {
                client: halves(client),
                server: halves(server),
            };
            tokio::select! {
                _ = connection.forward(&shared) => {}
                // Both sockets of a stalled connection stay open until the proxy closes it.
                _ = faults.changed() => { let _ = faults.wait_for(|fault| *fault == ConnectionFault::Cut).await; }
            }
        });
    }
}

type Reader = BufReader<OwnedReadHalf>;
type Writer = BufWriter<OwnedWriteHalf>;

fn halves(socket: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = socket.into_split();
    (BufReader::new(reader), BufWriter::new(writer))
}

struct ProxiedConnection {
    client: (Reader, Writer),
    server: (Reader, Writer),
}

/// The state that the two directions of a connection share.
#[derive(Default)]
struct SharedProgress {
    /// Whether no transaction is open.
    idle: AtomicBool,
    /// Whether the server's messages are no longer delivered.
    severed: AtomicBool,
    /// Whether the end of the next statement is answered as if it had been committed.
    answers_early: AtomicBool,
}

impl ProxiedConnection {
    /// Forwards until one side closes or the connection is to be closed at a commit.
    async fn forward(&mut self, shared: &Shared) -> io::Result<()> {
        loop {
            let (bytes, asks_for_encryption) =
                postgres_protocol::read_startup_message(&mut self.client.0).await?;
            send(&mut self.server.1, &bytes, true).await?;
            if !asks_for_encryption {
                break;
            }
            let answer = self.server.0.read_u8().await?;
            send(&mut self.client.1, &[answer], true).await?;
        }
        let progress = SharedProgress::default();
        let requests = forward_requests(&mut self.client.0, &mut self.server.1, &progress, shared);
        let answers = forward_answers(&mut self.server.0, &mut self.client.1, &progress);
        tokio::select! {
            ended = requests => ended,
            ended = answers => ended,
        }
    }
}

/// Forwards the client's messages. Returns when the connection is to be closed before a commit.
async fn forward_requests(
    from: &mut Reader,
    to: &mut Writer,
    progress: &SharedProgress,
    shared: &Shared,
) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        let frame = shared.rewrite(Frame::read(from).await?);
        let effect = session.observe(&frame, progress.idle.load(Ordering::SeqCst));
        if effect != Effect::None {
            match shared.draw_commit_fault() {
                CommitFault::None if effect == Effect::Append && shared.answers_early() => {
                    progress.answers_early.store(true, Ordering::SeqCst);
                    send(to, Frame::flush().bytes(), true).await?;
                    // tidy: allow(sleep): the append is answered, and stays uncommitted this long
                    sleep(EARLY_ANSWER_LEAD).await;
                }
                CommitFault::None => {}
                // tidy: allow(sleep): the delay simulates a slow network
                CommitFault::Delay => sleep(COMMIT_DELAY).await,
                CommitFault::CutBefore => return Ok(()),
                CommitFault::CutAfter => progress.severed.store(true, Ordering::SeqCst),
            }
        }
        send(to, frame.bytes(), from.buffer().is_empty()).await?;
    }
}

/// Sends bytes now, or together with the following ones.
async fn send(to: &mut Writer, bytes: &[u8], now: bool) -> io::Result<()> {
    to.write_all(bytes).await?;
    if now { to.flush().await } else { Ok(()) }
}

/// Forwards the server's messages. Returns when the connection is to be closed after a commit,
/// whose answer is not forwarded.
async fn forward_answers(
    from: &mut Reader,
    to: &mut Writer,
    progress: &SharedProgress,
) -> io::Result<()> {
    // Whether ReadyForQuery was delivered before the server sent it.
    let mut is_answered = false;
    loop {
        let frame = Frame::read(from).await?;
        let severed = progress.severed.load(Ordering::SeqCst);
        if let Some(idle) = frame.ready() {
            progress.idle.store(idle, Ordering::SeqCst);
            if severed {
                return Ok(());
            }
            if std::mem::take(&mut is_answered) {
                continue;
            }
        }
        if !severed {
            send(to, frame.bytes(), from.buffer().is_empty()).await?;
        }
        if frame.completes() && progress.answers_early.swap(false, Ordering::SeqCst) {
            is_answered = true;
            send(to, Frame::ready_and_idle().bytes(), true).await?;
        }
    }
}
