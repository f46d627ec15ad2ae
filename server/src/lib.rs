//! The gRPC and HTTP doors of anneal: parse what comes in, ask the store, let core decide, answer.

mod build;
mod call;
mod context;
mod house;
mod learning;
mod page;
mod parse;
mod policy;
mod pressure;
mod reply;
mod rpc;
mod run;
mod services;
mod settings;
mod status;
mod turn;
mod wire;

pub use house::House;
pub use policy::reply as policy;
pub use reply::{part, role};
pub use run::{Addresses, ServerError, serve};
pub use settings::{ChatSettings, ServerSettings};
