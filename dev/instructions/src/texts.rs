//! Constant texts of different kinds, in any length.

/// Length in bytes of the texts whose tokens are counted or estimated. The slowest text has a
/// quarter of it.
pub(crate) const SIZE: usize = 32_000;

/// The text of the license, because it never changes.
const ENGLISH: &str = include_str!("../../../LICENSE");
const CODE: &str = "\
/// Moves every account that is due, oldest first, and says how many were moved.
pub fn settle(accounts: &mut BTreeMap<AccountId, Account>, now: u64) -> Result<usize, SettleError> {
    let mut moved = 0;
    for (id, account) in accounts.iter_mut().filter(|(_, account)| account.due <= now) {
        let Some(next) = account.plan.after(now) else { return Err(SettleError::NoPlan(*id)) };
        account.balance = account.balance.checked_sub(account.rate * 100).ok_or(SettleError::Overdrawn)?;
        account.due = next; // \"due\" is exclusive
        moved += 1;
    }
    if moved == 0 {
        eprintln!(\"nothing was due at {now:?}: {:#x}\", 0xDEAD_BEEF_u32);
    }
    Ok(moved)
}

";
const CHINESE: &str = "我们明天早上八点在车站见面，然后一起去看海。天气预报说会下雨，所以请带伞。\
                       晚上回来以后，大家在老城区的小饭馆吃饭，顺便讨论下个月的旅行计划。";

/// The first `bytes` of English prose, repeated from its start if necessary.
pub(crate) fn english(bytes: usize) -> String {
    repeat_to(ENGLISH, bytes)
}

/// The first `bytes` of Rust code, repeated from its start if necessary.
pub(crate) fn code(bytes: usize) -> String {
    repeat_to(CODE, bytes)
}

/// At most `bytes` of Chinese text, cut at a character boundary.
pub(crate) fn chinese(bytes: usize) -> String {
    repeat_to(CHINESE, bytes)
}

/// The first `bytes` of the slowest text known to count: runs of 1,000 dashes, each with a plus
/// after it.
pub(crate) fn hostile(bytes: usize) -> String {
    repeat_to(&format!("{}+", "-".repeat(1_000)), bytes)
}

fn repeat_to(text: &str, bytes: usize) -> String {
    let mut whole = text.repeat(bytes / text.len() + 1);
    whole.truncate(whole.floor_char_boundary(bytes));
    whole
}
