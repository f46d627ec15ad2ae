//! Campaigns of faults against whole processes. Clients record a history, a fault injector follows
//! a plan, and a checker checks every promise of docs/reliability.md. All choices follow from one
//! seed, which is printed. The same seed makes the same choices again, though not the same timing.
//!
//! - `campaign`: runs one campaign. `plan`: chooses its faults. `fault_injector`: injects them.
//! - `proxy`: closes connections at commits. `postgres_protocol`: the messages of
//!   PostgreSQL that proxies read and write. `sabotage`: breaks promises on purpose.
//! - `client`, `client_appends`, `client_changes`, `chat_client`, `reader`: the clients. `history`:
//!   what they sent and which answers they got. `message_states`: what stands because of it.
//!   `message_lists`: reads conversations. `campaign_state`: what clients and checkers share.
//! - `audit`: the checks during a campaign. `checker`, `final_checks`: the checks at its end.
//!   `recount`: counts tokens again, with another tokenizer. `findings`: the broken promises.
//! - `processes`, `cluster`: the servers, workers and PostgreSQL of a campaign. `clocks`: their
//!   clocks. `model`: their language model.
//! - `behind_pooler`, `clock_set_back`, `disk`, `erased_user`, `orphans`, `stalled_workers`,
//!   `standby`: campaigns with special faults.
//! - `attack`: a campaign of one tenant against another.

mod attack;
mod audit;
mod behind_pooler;
mod campaign;
mod campaign_state;
mod chat_client;
mod checker;
mod client;
mod client_appends;
mod client_changes;
mod clock_set_back;
mod clocks;
mod cluster;
mod disk;
mod erased_user;
mod fault_injector;
mod final_checks;
mod findings;
mod history;
mod message_lists;
mod message_states;
mod model;
mod orphans;
mod plan;
mod postgres_protocol;
mod processes;
mod proxy;
mod reader;
mod recount;
mod sabotage;
mod stalled_workers;
mod standby;

pub use attack::{Attack, AttackPlan, NeighborCampaign, NeighborReport};
pub use behind_pooler::run_behind_pooler;
pub use campaign::{Campaign, Report};
pub use clock_set_back::run_with_clock_set_back;
pub use clocks::Clocks;
pub use cluster::{Cluster, Database};
pub use disk::run_on_full_disk;
pub use erased_user::run_with_erased_user;
pub use findings::{Finding, Findings, Tally};
pub use model::{ModelBehavior, RecordingModel};
pub use orphans::{
    Orphans, Poison, run_poison_job, run_with_killed_workers, run_with_silent_connections,
};
pub use plan::{Fault, Plan, Step};
pub(crate) use postgres_protocol::{Frame, read_startup_message};
pub use proxy::{Commits, Proxy};
pub use sabotage::Sabotage;
pub use stalled_workers::run_with_suspended_workers;
pub use standby::run_with_promoted_standby;
