//! Providers' prices for input tokens that are in their cache, and for those that are not.

/// A price list, in hundredths of the price of an uncached input token.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    /// The provider that has such prices, with the prices for cached and written tokens.
    pub name: &'static str,
    /// For a token read from the cache.
    pub cached: u64,
    /// For a token that is not in the cache, including writing it to the cache.
    pub written: u64,
}

/// The price of an uncached input token, in the unit of the price lists.
pub const PLAIN_PRICE: u64 = 100;

/// A tenth for cached tokens, a quarter more for written ones.
pub const ANTHROPIC: Prices = Prices {
    name: "anthropic 0.1 + 1.25",
    cached: 10,
    written: 125,
};

/// The price lists that rules are measured with.
pub const ALL: [Prices; 3] = [
    ANTHROPIC,
    Prices {
        name: "openai 0.25 + 1",
        cached: 25,
        written: 100,
    },
    Prices {
        name: "deepseek 0.02 + 1",
        cached: 2,
        written: 100,
    },
];

impl Prices {
    /// The cost of `sent` tokens, of which `cached` were in the cache, in the price list's unit.
    pub fn cost(self, sent: u64, cached: u64) -> u64 {
        cached * self.cached + (sent - cached) * self.written
    }

    /// The extra cost of a token that must be written to the cache again, as a multiple of the
    /// price of a cached token.
    pub fn rho(self) -> f64 {
        (self.written - self.cached) as f64 / self.cached as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewriting_costs_many_times_as_much_as_a_cached_read() {
        // In tenths.
        assert_eq!(
            ALL.map(|prices| (prices.rho() * 10.0).round() as u64),
            [115, 30, 490]
        );
    }

    #[test]
    fn cached_and_written_tokens_have_their_own_prices() {
        assert_eq!(ANTHROPIC.cost(10, 4), 4 * 10 + 6 * 125);
    }
}
