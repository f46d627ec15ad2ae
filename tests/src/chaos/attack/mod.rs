//! One tenant against another: an attacker with every verb does at random what is costly for a server, several things at a time,
//! while a neighbour does ordinary work. The neighbour's promises and latencies, the probes, the servers' memory and their logs
//! are the checker. All choices follow from one seed.

mod attacker;
mod bodies;
mod callers;
mod campaign;
mod connections;
mod floods;
mod installation;
mod jobs;
mod kind;
mod latencies;
mod model;
mod neighbour;
mod plan;
mod promises;
mod reads;
mod stock;
mod turns;
mod work;

pub use campaign::{NeighbourCampaign, NeighbourReport};
pub use kind::Attack;
pub use plan::AttackPlan;
