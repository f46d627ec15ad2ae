//! What stands between anneal and PostgreSQL: forwards everything, knows which message commits, and cuts the connection before
//! that message arrives, or after it was executed and before its answer is delivered. Open connections can be made to fall silent.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

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

use super::wire::{self, Frame, Session};

/// Of a thousand commits.
const THOUSAND: u32 = 1_000;
/// How long a slow commit waits.
const SLOW: Duration = Duration::from_millis(40);

/// The proxy; it and its connections are gone when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    far: AtomicU16,
    /// Commits of a thousand that are cut, and that are delayed.
    cut: AtomicU32,
    slow: AtomicU32,
    random: Mutex<fastrand::Rng>,
    ends: watch::Sender<End>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
}

/// What was done to commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Commits {
    /// Commits on their way to PostgreSQL.
    pub seen: u64,
    /// Of these: cut before they arrived.
    pub cut_before: u64,
    /// Cut after they were executed.
    pub cut_after: u64,
}

/// What became of the connections that were open so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cut,
    Silent,
}

/// What becomes of one commit.
enum Fate {
    Passes,
    Waits,
    NeverArrives,
    IsNotAnswered,
}

impl Proxy {
    /// A proxy to this port of this machine, whose choices follow from the seed.
    pub async fn to(far: u16, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            far: AtomicU16::new(far),
            cut: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            ends: watch::Sender::new(End::Cut),
            counts: Counts::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self { port, shared, accepting }
    }

    /// Where it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// New connections lead to this port from now on.
    pub fn leads_to(&self, far: u16) {
        self.shared.far.store(far, Ordering::SeqCst);
    }

    /// Cuts so many of a thousand commits from now on, and delays so many.
    pub fn disturb(&self, cut: u32, slow: u32) {
        self.shared.cut.store(cut, Ordering::SeqCst);
        self.shared.slow.store(slow, Ordering::SeqCst);
    }

    /// From now on nothing comes through the connections that are open, and nobody is told; new ones work.
    pub fn fall_silent(&self) {
        self.shared.ends.send_replace(End::Silent);
    }

    /// The connections that are open are lost, silent ones too; others may be made.
    pub fn cut_all(&self) {
        self.shared.ends.send_replace(End::Cut);
    }

    /// What was done to commits so far.
    pub fn commits(&self) -> Commits {
        let counts = &self.shared.counts;
        Commits {
            seen: counts.commits.load(Ordering::SeqCst),
            cut_before: counts.before.load(Ordering::SeqCst),
            cut_after: counts.after.load(Ordering::SeqCst),
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
    fn fate(&self) -> Fate {
        self.counts.commits.fetch_add(1, Ordering::SeqCst);
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let (cut, slow) = (self.cut.load(Ordering::SeqCst), self.slow.load(Ordering::SeqCst));
        match random.u32(0..THOUSAND) {
            drawn if drawn < cut && random.bool() => {
                self.counts.before.fetch_add(1, Ordering::SeqCst);
                Fate::NeverArrives
            }
            drawn if drawn < cut => {
                self.counts.after.fetch_add(1, Ordering::SeqCst);
                Fate::IsNotAnswered
            }
            drawn if drawn < cut + slow => Fate::Waits,
            _ => Fate::Passes,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { continue };
        let (shared, mut ends) = (Arc::clone(&shared), shared.ends.subscribe());
        ends.mark_unchanged();
        tokio::spawn(async move {
            // Where nobody listens the caller is let go.
            let Ok(far) = TcpStream::connect(("127.0.0.1", shared.far.load(Ordering::SeqCst))).await else { return };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let mut line = Line { near: halves(near), far: halves(far) };
            tokio::select! {
                _ = line.forward(&shared) => {}
                // Both sockets of a silent line stay open until it is cut.
                _ = ends.changed() => { let _ = ends.wait_for(|end| *end == End::Cut).await; }
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

struct Line {
    near: (Reader, Writer),
    far: (Reader, Writer),
}

/// What both directions of a line know.
#[derive(Default)]
struct Known {
    /// No transaction is open.
    idle: AtomicBool,
    /// What the server says now is not delivered any more.
    severed: AtomicBool,
}

impl Line {
    /// Forwards until one end closes, or the line is to be cut.
    async fn forward(&mut self, shared: &Shared) -> io::Result<()> {
        loop {
            let (bytes, is_answered) = wire::first(&mut self.near.0).await?;
            send(&mut self.far.1, &bytes, true).await?;
            if !is_answered {
                break;
            }
            let answer = self.far.0.read_u8().await?;
            send(&mut self.near.1, &[answer], true).await?;
        }
        let known = Known::default();
        let up = up(&mut self.near.0, &mut self.far.1, &known, shared);
        let down = down(&mut self.far.0, &mut self.near.1, &known);
        tokio::select! {
            ended = up => ended,
            ended = down => ended,
        }
    }
}

/// What the client says. Returns where the line is to be cut before a commit arrives.
async fn up(from: &mut Reader, to: &mut Writer, known: &Known, shared: &Shared) -> io::Result<()> {
    let mut session = Session::default();
    loop {
        let frame = Frame::read(from).await?;
        if session.commits(&frame, known.idle.load(Ordering::SeqCst)) {
            match shared.fate() {
                Fate::Passes => {}
                // tidy: allow(sleep): a slow network is what is made here
                Fate::Waits => sleep(SLOW).await,
                Fate::NeverArrives => return Ok(()),
                Fate::IsNotAnswered => known.severed.store(true, Ordering::SeqCst),
            }
        }
        send(to, frame.bytes(), from.buffer().is_empty()).await?;
    }
}

/// Passes bytes on: at once, or with those that follow.
async fn send(to: &mut Writer, bytes: &[u8], now: bool) -> io::Result<()> {
    to.write_all(bytes).await?;
    if now { to.flush().await } else { Ok(()) }
}

/// What the server says. Returns where the line is to be cut once a commit was executed.
async fn down(from: &mut Reader, to: &mut Writer, known: &Known) -> io::Result<()> {
    loop {
        let frame = Frame::read(from).await?;
        let severed = known.severed.load(Ordering::SeqCst);
        if let Some(idle) = frame.ready() {
            known.idle.store(idle, Ordering::SeqCst);
            if severed {
                return Ok(());
            }
        }
        if !severed {
            send(to, frame.bytes(), from.buffer().is_empty()).await?;
        }
    }
}
