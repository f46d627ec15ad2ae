//! What providers ask for input that their cache holds, and for input that it does not.

/// A price list, in hundredths of what a plain input token costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    /// Where such prices are found.
    pub(crate) name: &'static str,
    /// Of a token read from the cache.
    pub(crate) cached: u64,
    /// Of a token sent that is not in the cache, writing it there included.
    pub(crate) written: u64,
}

/// A tenth for what is cached, a quarter more for what is written.
pub(crate) const ANTHROPIC: Prices = Prices { name: "anthropic 0.1 + 1.25", cached: 10, written: 125 };

/// The price lists that rules are measured under.
pub(crate) const ALL: [Prices; 3] = [
    ANTHROPIC,
    Prices { name: "openai 0.25 + 1", cached: 25, written: 100 },
    Prices { name: "deepseek 0.02 + 1", cached: 2, written: 100 },
];

impl Prices {
    /// What a token costs that is sent, `cached` of `sent` from the cache.
    pub(crate) fn bill(self, sent: u64, cached: u64) -> u64 {
        cached * self.cached + (sent - cached) * self.written
    }

    /// How many times more it costs to write a token again than to send it from the cache.
    pub(crate) fn rho(self) -> f64 {
        (self.written - self.cached) as f64 / self.cached as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewriting_costs_many_times_what_sending_it_again_does() {
        assert_eq!(ALL.map(|prices| (prices.rho() * 10.0).round() as u64), [115, 30, 490]);
        assert_eq!(ANTHROPIC.bill(10, 4), 4 * 10 + 6 * 125);
    }
}
