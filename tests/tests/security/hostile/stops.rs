//! Cases of CancelTurn.

use crate::hostile::{
    ask_about,
    case::{Case, INVALID, LIMIT, answered, refused},
};

/// Cases of `CancelTurn`. No turn is under way.
pub(crate) fn stops(id: &str) -> Vec<Case> {
    let wait = |seconds, nanos| {
        ask_about!(
            id,
            CancelTurnRequest {
                wait: prost_types::Duration { seconds, nanos }
            }
        )
    };
    vec![
        refused("a wait of -1 s for a stop", wait(-1, 0), INVALID, "wait"),
        refused(
            "signs that differ, for a stop",
            wait(1, -1),
            INVALID,
            "wait",
        ),
        refused(
            "the least wait for a stop",
            wait(i64::MIN, i32::MIN),
            INVALID,
            "wait",
        ),
        refused("30 s and 1 ns for a stop", wait(30, 1), LIMIT, "wait"),
        refused(
            "the longest wait for a stop",
            wait(i64::MAX, i32::MAX),
            LIMIT,
            "wait",
        ),
        answered("the longest wait that is served, for no turn", wait(30, 0)),
        refused(
            "NUL in a turn's request id",
            ask_about!(
                id,
                CancelTurnRequest {
                    turn_request_id: "a\0"
                }
            ),
            INVALID,
            "turn_request_id",
        ),
        refused(
            "a turn's request id of 129 bytes",
            ask_about!(
                id,
                CancelTurnRequest {
                    turn_request_id: "x".repeat(129)
                }
            ),
            LIMIT,
            "turn_request_id",
        ),
    ]
}
