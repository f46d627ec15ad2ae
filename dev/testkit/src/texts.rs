//! Deterministic texts of a given number of sentences.

/// Sentence number `n` of a series. All sentences differ, and each contains facts (names and
/// numbers).
pub fn sentence(n: usize) -> String {
    const PLACES: [&str; 7] = [
        "Lisbon", "Osaka", "Nairobi", "Quito", "Tallinn", "Perth", "Cusco",
    ];
    const THINGS: [&str; 5] = ["warehouse", "invoice", "turbine", "manuscript", "shipment"];
    let (place, thing) = (PLACES[n % 7], THINGS[n % 5]);
    format!(
        "On day {n} the {thing} in {place} was inspected and report {} was filed by team {}.",
        n * 37 + 11,
        n % 4
    )
}

/// `count` sentences, starting with number `start`.
pub fn prose(start: usize, count: usize) -> String {
    (start..start + count)
        .map(sentence)
        .collect::<Vec<_>>()
        .join(" ")
}
