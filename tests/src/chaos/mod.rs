//! Campaigns of faults against whole processes: clients with a history, a nemesis with a plan, a checker that knows every promise.
//! All choices follow from one seed, which is printed; the same seed makes the same choices again, though not the same timing.

mod aftermath;
mod appends;
mod attack;
mod audit;
mod campaign;
mod checker;
mod client;
mod clocks;
mod cluster;
mod crew;
mod disk;
mod findings;
mod history;
mod model;
mod nemesis;
mod orphans;
mod plan;
mod pooled;
mod proxy;
mod reader;
mod scene;
mod set_back;
mod standby;
mod turns;
mod wire;
mod zombies;

pub use attack::{Attack, AttackPlan, NeighbourCampaign, NeighbourReport};
pub use campaign::{Campaign, Report};
pub use clocks::Clocks;
pub use cluster::{Cluster, Database};
pub use disk::full_disk;
pub use findings::{Finding, Findings, Tally};
pub use model::{Weather, Witness};
pub use orphans::{Orphans, Poison, orphans, poison, silence};
pub use plan::{Fault, Plan, Step};
pub use pooled::pooled;
pub use proxy::{Commits, Proxy};
pub use set_back::set_back;
pub use standby::takeover;
pub(crate) use wire::{Frame, first};
pub use zombies::zombies;
