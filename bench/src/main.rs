//! `make bench`: first figures of anneal. Starts a durable PostgreSQL, a server and a worker of its own, measures through
//! gRPC, prints a table and writes target/bench/results.json. Figures of one run may be compared; a shared machine's
//! absolute numbers may not.

mod append;
mod context;
mod count;
mod figures;
mod house;

use figures::Figures;
use house::House;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1);
    let runs = |scenario: &str| wanted.as_deref().is_none_or(|wanted| wanted == scenario);
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
    figures.write()
}
