//! Campaigns of faults against whole processes: clients with a history, a fault injector with a
//! plan, a checker of every promise. All choices follow from one seed, which is printed. The same
//! seed makes the same choices again, though not the same timing.
//!
//! `campaign` runs one; `plan` chooses its faults, `fault_injector` injects them, `proxy` cuts
//! commits, `sabotage` breaks promises on purpose. `client`, `client_appends`, `chat_client` and `reader` are its clients, `history`
//! records what they were told. `audit` checks during the campaign, `checker` and `final_checks` at
//! its end. `behind_pooler`, `clock_set_back`, `disk`, `orphans`, `stalled_workers` and `standby`
//! are further scenarios, `attack` is a campaign of one tenant against another.
//!
//! `processes` and `cluster` are the servers, workers and PostgreSQL of a campaign, `clocks` their
//! clocks, `model` their language model. `campaign_state` is what clients and checkers share,
//! `findings` what they found. `postgres_protocol` is what `proxy` knows of PostgreSQL's messages.

mod attack;
mod audit;
mod behind_pooler;
mod campaign;
mod campaign_state;
mod chat_client;
mod checker;
mod client;
mod client_appends;
mod clock_set_back;
mod clocks;
mod cluster;
mod disk;
mod fault_injector;
mod final_checks;
mod findings;
mod history;
mod model;
mod orphans;
mod plan;
mod postgres_protocol;
mod processes;
mod proxy;
mod reader;
mod sabotage;
mod stalled_workers;
mod standby;

pub use attack::{Attack, AttackPlan, NeighbourCampaign, NeighbourReport};
pub use behind_pooler::run_behind_pooler;
pub use campaign::{Campaign, Report};
pub use clock_set_back::set_clock_back;
pub use clocks::Clocks;
pub use cluster::{Cluster, Database};
pub use disk::fill_disk;
pub use findings::{Finding, Findings, Tally};
pub use model::{ModelBehavior, RecordingModel};
pub use orphans::{Orphans, Poison, orphan_jobs, run_poison_job, silence_connections};
pub use plan::{Fault, Plan, Step};
pub(crate) use postgres_protocol::{Frame, read_startup_message};
pub use proxy::{Commits, Proxy};
pub use sabotage::Sabotage;
pub use stalled_workers::stall_workers;
pub use standby::promote_standby;
