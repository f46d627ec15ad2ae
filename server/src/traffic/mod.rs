//! What callers take of this server: how often they call, how many bytes come and go for them, and how many of those wait
//! here because somebody sends or reads slowly. The same for both doors.

mod accounts;
mod coming;
mod going;
mod layer;
mod meter;
mod settings;

pub use self::settings::LimitSettings;
pub(crate) use self::{
    accounts::{RequestRoom, Tab, Traffic},
    going::PIECE,
    layer::{Counting, TrafficLayer},
    meter::{Meter, Rate},
};
