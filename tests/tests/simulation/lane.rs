//! A lane: plays one list after another, with a house, its database and its connections for all of them.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anneal_tests::House;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use sqlx::PgConnection;
use tokio::runtime::Builder;

use crate::{
    invariants,
    operations::{self, Operation},
    world::{Broken, Tally, World},
};

/// Operations of the longest list.
const LONGEST: usize = 20;
/// Lists from one seed.
const LISTS: u32 = 16;

/// What the lanes have in common.
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) began: Instant,
    pub(crate) until: Instant,
    /// Whether a lane has found what it looks for; the others then end.
    pub(crate) broken: AtomicBool,
}

/// A policy, and what happens under it.
type List = (u8, Vec<Operation>);

/// After which operations of a list is looked closely. In any case everything is looked at when all is done.
#[derive(Debug, Clone, Copy)]
enum Watch {
    /// After each, at everything.
    Each,
    /// After one: this place, taken around the list.
    One(usize),
}

struct Lane<'a> {
    run: &'a Run,
    number: u64,
    house: House,
    db: PgConnection,
    tally: Tally,
    /// Once a list is broken: how the shorter ones are watched that may break in the same way.
    shortening: Option<Watch>,
}

/// Plays lists until the time is over; returns what has happened.
pub(crate) fn play(run: &Run, number: u64) -> Tally {
    // One thread for a lane's server, workers and callers: they take turns anyway.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let lane = RefCell::new(runtime.block_on(async {
        let house = House::start().await;
        let mut db = house.db().await;
        // Few statements, again and again: each is planned once.
        sqlx::query("set plan_cache_mode = force_generic_plan").execute(&mut db).await.expect("sets");
        Lane { run, number, house, db, tally: Tally::new(), shortening: None }
    }));
    for batch in 0_u64.. {
        if Instant::now() >= run.until || run.broken.load(Ordering::Relaxed) {
            break;
        }
        let mut bytes = [0; 32];
        for (place, part) in [run.seed, number, batch].into_iter().enumerate() {
            bytes[8 * place..8 * place + 8].copy_from_slice(&part.to_le_bytes());
        }
        let config = Config { cases: LISTS, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let outcome = runner.run(&operations::lists(LONGEST), |list| {
            runtime.block_on(lane.borrow_mut().try_list(&list)).map_err(TestCaseError::fail)
        });
        assert!(
            outcome.is_ok(),
            "seed {}, lane {number}, batch {batch}: {}",
            run.seed,
            outcome.expect_err("it is one")
        );
    }
    lane.into_inner().tally
}

impl Lane<'_> {
    /// Plays a list, looked at closely once. One that is broken is played again, with everything looked at after each
    /// operation: so are then those that it is shortened to, except where only the first way shows it.
    async fn try_list(&mut self, list: &List) -> Result<(), Broken> {
        if let Some(watch) = self.shortening {
            return self.play(list, watch).await;
        }
        if self.run.broken.load(Ordering::Relaxed) {
            // One at a time.
            return Ok(());
        }
        let lists = self.tally.entry("lists").or_default();
        *lists += 1;
        let (lists, watch) = (*lists, Watch::One(*lists as usize));
        let Err(why) = self.play(list, watch).await else { return Ok(()) };
        if self.run.broken.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let seconds = self.run.began.elapsed().as_secs_f64();
        println!("lane {}: the list {lists} is broken, after {seconds:.1} s, and is shortened: {why}", self.number);
        let exact = self.play(list, Watch::Each).await;
        self.shortening = Some(if exact.is_err() { Watch::Each } else { watch });
        exact.and(Err(why))
    }

    /// One list on a conversation of its own; afterwards nothing of it is left.
    async fn play(&mut self, (policy, list): &List, watch: Watch) -> Result<(), Broken> {
        let mut world = World::make(&self.house, &mut self.db, *policy, &mut self.tally).await;
        let mut broken = None;
        for (place, operation) in list.iter().enumerate() {
            *world.tally.entry("operations").or_default() += 1;
            let look = match watch {
                Watch::Each => Look::Everything,
                Watch::One(one) if one % list.len() == place => Look::Closely,
                Watch::One(_) => Look::Quickly,
            };
            let happened = happens(&mut world, *operation, look).await;
            if let Err(why) = happened {
                broken = Some(format!("after operation {}, {operation:?}: {why}", place + 1));
                break;
            }
        }
        if broken.is_none() {
            world.settle().await;
            broken = invariants::are_settled(&mut world).await.err().map(|why| format!("when all was done: {why}"));
        }
        // Also after a failure, so that the next list finds nothing of it.
        let ended = world.end().await;
        let left = invariants::nothing_is_left(&mut self.db).await;
        let outcome = broken.map_or(ended.and(left), Err);
        if outcome.is_err() {
            invariants::clear(&mut self.db).await;
        }
        outcome
    }
}

/// What is looked at after an operation.
enum Look {
    Quickly,
    Closely,
    Everything,
}

/// One operation, and what must hold after it.
async fn happens(world: &mut World<'_>, operation: Operation, look: Look) -> Result<(), Broken> {
    let is_nothing = world.has_nothing_for(operation);
    if !is_nothing {
        world.happen(operation).await?;
    }
    match look {
        Look::Quickly if is_nothing => Ok(()),
        Look::Quickly => invariants::hold(world).await.map(|_| ()),
        Look::Closely => invariants::hold_closely(world).await,
        Look::Everything => invariants::all_hold(world).await.map(|_| ()),
    }
}
