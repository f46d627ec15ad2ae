//! Runs one list after another in one thread. All lists of a thread share a server, its database
//! and its connections.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anneal_testkit::{
    ScriptedModel, TestApp,
    chaos::{Proxy, Sabotage},
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use sqlx::PgConnection;
use tokio::runtime::Builder;

use crate::simulation::{
    conversation::{SimulatedConversation, Tally, Violation},
    invariants,
    operations::{self, Operation},
    turn_script::TurnScript,
};

/// Operations in the longest list.
const LONGEST: usize = 24;
/// Lists in one batch. Each batch has its own random seed.
const LISTS: u32 = 16;

/// State that the threads share.
pub(crate) struct SharedRun {
    pub(crate) seed: u64,
    pub(crate) began: Instant,
    pub(crate) end: RunEnd,
    /// Whether a thread has found a violation. The other threads then stop.
    pub(crate) violated: AtomicBool,
    /// The promise that is broken on purpose. The first violation ends the run, and no list is
    /// shortened.
    pub(crate) sabotage: Option<&'static Sabotage>,
}

/// When a run without a violation ends.
pub(crate) enum RunEnd {
    /// Before the first batch after this time.
    At(Instant),
    /// After each thread has run this many batches, however long that takes.
    AfterBatches(u64),
}

impl RunEnd {
    /// Whether a thread that has run this many batches ends.
    fn is_reached(&self, batches: u64) -> bool {
        match self {
            Self::At(time) => Instant::now() >= *time,
            Self::AfterBatches(most) => batches >= *most,
        }
    }
}

/// The number of the policy, and the operations.
type List = (u8, Vec<Operation>);

/// After which operations of a list more than [`invariants::check`] runs. After the last operation
/// everything is checked in any case.
#[derive(Debug, Clone, Copy)]
enum CheckSchedule {
    /// [`invariants::check_all`] runs after each operation.
    AfterEach,
    /// [`invariants::check_closely`] runs after one operation: that at this index, modulo the
    /// length of the list.
    AfterOne(usize),
}

struct ListRunner<'a> {
    run: &'a SharedRun,
    /// Number of the thread.
    number: u64,
    app: TestApp,
    db: PgConnection,
    /// The answers of the app's model.
    script: TurnScript,
    _model: ScriptedModel,
    _proxy: Option<Proxy>,
    /// The first violation.
    violation: Option<Violation>,
    tally: Tally,
    /// Set once a list has violated an invariant: the schedule for the shortened lists.
    shortening: Option<CheckSchedule>,
}

/// Runs lists in the thread with this number, until the run's end is reached or another thread has
/// found a violation. Returns how often each event has happened, or the violation that this thread
/// has found and the shortened list.
pub(crate) fn run_lists(run: &SharedRun, number: u64) -> Result<Tally, Violation> {
    // The server, workers and callers of a list share one thread: they work one after the other.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let runner = RefCell::new(runtime.block_on(async {
        let script = TurnScript::default();
        let model = script.start_model().await;
        let (app, proxy) = match run.sabotage {
            None => (TestApp::with_scripted_model(&model).await, None),
            Some(sabotage) => {
                let (app, proxy) = TestApp::with_sabotage(&model, sabotage).await;
                (app, Some(proxy))
            }
        };
        let mut db = app.db().await;
        // A generic plan, because the same few statements are executed very often.
        sqlx::query("set plan_cache_mode = force_generic_plan")
            .execute(&mut db)
            .await
            .expect("sets");
        ListRunner {
            run,
            number,
            app,
            db,
            script,
            _model: model,
            _proxy: proxy,
            violation: None,
            tally: Tally::new(),
            shortening: None,
        }
    }));
    for batch in 0_u64.. {
        if run.end.is_reached(batch) || run.violated.load(Ordering::Relaxed) {
            break;
        }
        // The generator's seed has 32 bytes: three numbers of 8 bytes, then zeros.
        let mut generator_seed = [0; 32];
        for (index, part) in [run.seed, number, batch].into_iter().enumerate() {
            generator_seed[8 * index..8 * index + 8].copy_from_slice(&part.to_le_bytes());
        }
        let config = Config {
            cases: LISTS,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            ..Config::default()
        };
        let mut generator = TestRunner::new_with_rng(
            config,
            TestRng::from_seed(RngAlgorithm::ChaCha, &generator_seed),
        );
        let outcome = generator.run(&operations::lists(LONGEST), |list| {
            runtime
                .block_on(runner.borrow_mut().run_list(&list))
                .map_err(TestCaseError::fail)
        });
        if let Err(error) = outcome {
            let first = runner.into_inner().violation.unwrap_or_default();
            let seed = run.seed;
            return Err(format!(
                "seed {seed}, thread {number}, batch {batch}: {first}; shortened: {error}"
            ));
        }
    }
    Ok(runner.into_inner().tally)
}

impl ListRunner<'_> {
    /// Runs a list with [`CheckSchedule::AfterOne`]. If it violates an invariant, it runs again
    /// with [`CheckSchedule::AfterEach`]. If that run shows a violation too, the shortened lists
    /// run with this schedule; otherwise they run with the first one.
    async fn run_list(&mut self, list: &List) -> Result<(), Violation> {
        if let Some(schedule) = self.shortening {
            return self.perform_list(list, schedule).await;
        }
        if self.run.sabotage.is_some() && self.violation.is_some() {
            return Ok(());
        }
        if self.run.violated.load(Ordering::Relaxed) {
            // Only one violation is shortened at a time.
            return Ok(());
        }
        let lists = self.tally.entry("lists").or_default();
        *lists += 1;
        let lists = *lists;
        let schedule = CheckSchedule::AfterOne(lists as usize);
        let Err(violation) = self.perform_list(list, schedule).await else {
            return Ok(());
        };
        if self.run.violated.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.violation = Some(violation.clone());
        if self.run.sabotage.is_some() {
            return Err(violation);
        }
        let seconds = self.run.began.elapsed().as_secs_f64();
        println!(
            "thread {}: list {lists} violates an invariant after {seconds:.1} s and is shortened: {violation}",
            self.number
        );
        let rerun = self.perform_list(list, CheckSchedule::AfterEach).await;
        self.shortening = Some(if rerun.is_err() {
            CheckSchedule::AfterEach
        } else {
            schedule
        });
        // Returns the second run's violation if there is one, otherwise the first run's.
        rerun.and(Err(violation))
    }

    /// Performs one list on a new conversation, and deletes the conversation.
    async fn perform_list(
        &mut self,
        (policy, list): &List,
        schedule: CheckSchedule,
    ) -> Result<(), Violation> {
        let mut simulated = SimulatedConversation::create(
            &self.app,
            &mut self.db,
            *policy,
            &self.script,
            &mut self.tally,
        )
        .await;
        let mut violation = None;
        for (index, operation) in list.iter().enumerate() {
            *simulated.tally.entry("operations").or_default() += 1;
            let depth = match schedule {
                CheckSchedule::AfterEach => CheckDepth::All,
                CheckSchedule::AfterOne(one) if one % list.len() == index => CheckDepth::Close,
                CheckSchedule::AfterOne(_) => CheckDepth::Quick,
            };
            let outcome = perform_and_check(&mut simulated, *operation, depth).await;
            if let Err(found) = outcome {
                violation = Some(format!(
                    "after operation {}, {operation:?}: {found}",
                    index + 1
                ));
                break;
            }
        }
        if violation.is_none() {
            simulated.finish_all_jobs().await;
            violation = invariants::check_after_all_jobs(&mut simulated)
                .await
                .err()
                .map(|found| format!("after all jobs: {found}"));
        }
        // The conversation is deleted after a violation too, so that the next list finds no rows of
        // it.
        let deleted = simulated.delete_and_resume_workers().await;
        let rows_left = invariants::check_no_rows_left(&mut self.db).await;
        let outcome = violation.map_or(deleted.and(rows_left), Err);
        if outcome.is_err() {
            invariants::delete_all_rows(&mut self.db).await;
        }
        outcome
    }
}

/// The checks after an operation.
enum CheckDepth {
    /// [`invariants::check`].
    Quick,
    /// [`invariants::check_closely`].
    Close,
    /// [`invariants::check_all`].
    All,
}

/// Performs one operation and checks the invariants.
async fn perform_and_check(
    simulated: &mut SimulatedConversation<'_>,
    operation: Operation,
    depth: CheckDepth,
) -> Result<(), Violation> {
    let is_no_op = simulated.is_no_op(operation);
    if !is_no_op {
        simulated.perform(operation).await?;
    }
    match depth {
        CheckDepth::Quick if is_no_op => Ok(()),
        CheckDepth::Quick => invariants::check(simulated).await.map(|_| ()),
        CheckDepth::Close => invariants::check_closely(simulated).await,
        CheckDepth::All => invariants::check_all(simulated).await.map(|_| ()),
    }
}
