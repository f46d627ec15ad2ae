//! The gates on what a model's summary says. They refuse loops, copies, texts in another script or
//! about something else, and texts with almost no content.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{call, result, source, text};
use crate::gate_checks::{assert_passes, chinese, english, rejection};
use anneal_core::message::Role;
use anneal_llm::{RejectedSummary, Source};

#[test]
fn a_loop_is_refused() {
    let said = "The user asked to close the garden and open the harbour. ".repeat(6);
    assert_eq!(rejection(&english(), &said), RejectedSummary::Repetitive);
}

#[test]
fn a_passage_of_the_source_is_refused() {
    let sources = english();
    let passage: String = sources[4..8]
        .iter()
        .flat_map(Source::texts)
        .fold(String::new(), |all, text| all + text + "\n");
    assert_eq!(rejection(&sources, &passage), RejectedSummary::CopiesSource);
    let sources = chinese();
    let passage: String = sources[4..8].iter().flat_map(Source::texts).collect();
    assert_eq!(rejection(&sources, &passage), RejectedSummary::CopiesSource);
}

#[test]
fn a_text_with_some_quoted_sentences_is_not_a_copy() {
    let sources = english();
    let quoted = sources[9].texts().next().unwrap();
    assert_passes(
        &sources,
        &format!(
            "Ann and Bob planned which places close and open. One message in full: {quoted} The rest is alike, week by week."
        ),
    );
}

#[test]
fn a_text_in_another_script_than_its_source_is_refused() {
    let english_text =
        "Ann wants every order changed to its new address and each customer told on the same day.";
    let chinese_text = "安想在每周关闭一个地方，等鲍勃付款之后再打开另一个地方，细节逐周确定，没有人反对这个计划。";
    let russian_text = "Анна хочет закрыть сад и открыть гавань, как только Боб заплатит за это, никто не возражает.";
    assert_eq!(
        rejection(&chinese(), english_text),
        RejectedSummary::WrongScript
    );
    assert_eq!(
        rejection(&english(), chinese_text),
        RejectedSummary::WrongScript
    );
    assert_eq!(
        rejection(&english(), russian_text),
        RejectedSummary::WrongScript
    );
    assert_passes(&english(), english_text);
    assert_passes(
        &chinese(),
        "用户要求逐个修改订单地址并在当天通知客户，助手全部完成，客户下午确认收到。",
    );
}

#[test]
fn a_chinese_summary_of_a_dialogue_about_code_passes() {
    let code = "fn open(door: &Door) -> Result<(), Jammed> {\n    let hinge = door.hinge();\n    hinge.turn(90)?;\n    Ok(())\n}\n".repeat(12);
    let sources = [
        source(
            1,
            Role::User,
            vec![text("为什么这扇门打不开？请检查代码并修复它。")],
        ),
        source(
            2,
            Role::Assistant,
            vec![
                text("我先看一下代码。"),
                call("c", "read", "{\"path\":\"src/door.rs\"}"),
            ],
        ),
        source(3, Role::Tool, vec![result("c", &code)]),
    ];
    assert_passes(
        &sources,
        "用户问门为什么打不开。助手读了 src/door.rs，发现 hinge.turn 返回 Jammed 错误，尚未修复。",
    );
    assert_passes(
        &sources,
        "用户的门打不开；src/door.rs: fn open(door: &Door) -> Result<(), Jammed> 调用 door.hinge() 再 hinge.turn(90)，错误是 Jammed。",
    );
}

#[test]
fn a_chinese_question_above_a_long_english_log_may_be_summarized_in_either_language() {
    let log =
        "error: the connection to the database was refused while the service started and nobody was told\n".repeat(30);
    let sources = [
        source(1, Role::User, vec![text(format!("总结日志\n{log}"))]),
        source(
            2,
            Role::Assistant,
            vec![text("好的，我来总结这个日志的内容。")],
        ),
    ];
    assert_passes(
        &sources,
        "用户要求总结一份日志：服务启动时数据库连接被拒绝，同样的错误重复了很多次，没有人收到通知。",
    );
    assert_passes(
        &sources,
        "The user asks for a summary of a log: when the service starts, its database refuses connections.",
    );
}

#[test]
fn a_text_about_something_else_is_refused() {
    let said = "The expedition crossed the glacier before winter storms destroyed their supplies, and several climbers \
                abandoned expensive equipment near the southern ridge while rescuers searched everywhere.";
    assert_eq!(rejection(&english(), said), RejectedSummary::Ungrounded);
    let said = "探险队在冬天以前穿过冰川，风暴毁掉了所有补给，几名登山者把昂贵器材丢在南面山脊。";
    assert_eq!(rejection(&chinese(), said), RejectedSummary::Ungrounded);
    assert_passes(
        &chinese(),
        "用户请助手修改多个订单的地址并通知客户，全部已经修改完成，客户确认收到通知。",
    );
}

#[test]
fn an_almost_empty_summary_of_a_long_source_is_refused() {
    for said in [
        "OK.",
        "I'm sorry, but I can't help with that, whoever asks.",
        "A plan for places.",
        "{\"summary\": \"Done.\"}",
    ] {
        assert_eq!(
            rejection(&english(), said),
            RejectedSummary::NoContent,
            "{said}"
        );
    }
    assert_eq!(
        rejection(&chinese(), "全部完成了。"),
        RejectedSummary::NoContent
    );
    assert_passes(&english(), "Ann plans to close and to open places.");
    // A short source may have a short summary.
    assert_passes(&english()[..8], "Ann plans places.");
}

#[test]
fn a_repeated_group_of_words_is_refused() {
    let said = "Ann would close the garden, and the week, and the week, and the week, and the week, and then Bob paid.";
    assert_eq!(rejection(&english(), said), RejectedSummary::Repetitive);
}
