//! `make bench`: first figures of anneal. Starts a durable PostgreSQL, a server and a worker of its own, measures through
//! gRPC, prints a table and writes target/bench/results.json. Figures of one run may be compared; a shared machine's
//! absolute numbers may not.
//!
//! `anneal-bench replay-simulated` replays real transcripts without a service and needs none of that; `anneal-bench replay
//! [FAMILY]`, built with the feature `replay`, replays them through one in this process.

mod append;
mod context;
mod count;
mod figures;
mod house;
mod isolation;
mod lists;
mod replay;
mod resolve;
mod silent_model;

use figures::Figures;
use house::House;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1);
    let runs = |scenario: &str| wanted.as_deref().is_none_or(|wanted| wanted == scenario);
    if wanted.as_deref() == Some("replay-simulated") {
        return replay::measure_simulated();
    }
    if wanted.as_deref() == Some("replay") {
        return replay_through_the_service().await;
    }
    let mut figures = Figures::default();
    if runs("count") {
        count::measure(&mut figures);
    }
    if runs("append") || runs("context") {
        let house = House::start().await?;
        if runs("append") {
            append::measure(&house, &mut figures).await?;
        }
        if runs("context") {
            context::measure(&house, &mut figures).await?;
        }
        house.stop().await?;
    }
    if runs("lists") {
        let house = House::start().await?;
        lists::measure(&house, &mut figures).await?;
        house.stop().await?;
    }
    if runs("resolve") {
        resolve::measure(&mut figures).await?;
    }
    if runs("isolation") {
        isolation::measure(&mut figures).await?;
    }
    figures.write()
}

#[cfg(feature = "replay")]
async fn replay_through_the_service() -> anyhow::Result<()> {
    replay::measure_service(std::env::args().nth(2).as_deref()).await
}

#[cfg(not(feature = "replay"))]
#[expect(clippy::unused_async, reason = "with the feature it waits")]
async fn replay_through_the_service() -> anyhow::Result<()> {
    anyhow::bail!(
        "built without a service to replay through: build with --features replay, or `make bench SCENARIO=replay`"
    )
}
