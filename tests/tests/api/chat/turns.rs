//! A turn stores its prompt, calls the model, streams the answer and stores it.

use anneal_llm::provider::Api;
use anneal_testkit::{
    Gate, MODEL, ReportedUsage, Say, Script, ScriptedModel, TestApp, assert_refused, assistant,
    call, media, pb, result, text, user,
};
use pb::{StopReason, chat_response::Event, part::Part};
use tonic::Code;

#[tokio::test]
async fn a_chat_stores_question_and_answer_and_reports_usage() {
    let model = ScriptedModel::start(|_| {
        let counted = ReportedUsage {
            input: 900,
            cached: 600,
            output: 7,
            ..ReportedUsage::default()
        };
        Script::openai(&["The ferry ", "leaves at nine."], counted)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let outcome = conversation.chat("When does the ferry leave?").await;
    assert_eq!(outcome.started().message_ids, [1]);
    assert_eq!(
        (outcome.started().turn, outcome.text().as_str()),
        (1, "The ferry leaves at nine.")
    );
    let done = outcome.done();
    assert_eq!(
        (done.conversation_id.as_str(), &done.message_ids),
        (conversation.id.as_str(), &vec![1, 2])
    );
    assert_eq!(
        (done.answer_message_id, done.model.as_str(), done.attempts),
        (2, MODEL, 1)
    );
    assert_eq!(
        (done.stop_reason(), done.replayed),
        (StopReason::Done, false)
    );
    let expected_usage = pb::ModelUsage {
        input_tokens: 900,
        cached_tokens: 600,
        written_tokens: 0,
        output_tokens: 7,
        reasoning_tokens: 0,
    };
    assert_eq!(done.usage, Some(expected_usage));
    let expected = [
        (pb::Role::User, "When does the ferry leave?".to_owned()),
        (pb::Role::Assistant, outcome.text()),
    ];
    assert_eq!(conversation.texts_by_role().await, expected);
    let total = conversation
        .conversation()
        .await
        .token_total
        .expect("a total")
        .tokens;
    assert_eq!(done.token_estimate, total);
    conversation.verify().await;
}

#[tokio::test]
async fn text_reaches_the_caller_before_the_answer_is_complete() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, Say::texts(&["first ", "second"])).gated(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let mut stream = conversation.chat("go").open().await.expect("begins");
    let mut next = async || {
        stream
            .message()
            .await
            .expect("goes on")
            .and_then(|response| response.event)
    };
    assert!(matches!(next().await, Some(Event::Started(_))));
    // Two events: the role, which is OpenAI's first event, and the first text.
    gate.open(2);
    assert_eq!(next().await, Some(Event::TextDelta("first ".into())));
    assert_eq!(
        conversation.messages().await.len(),
        1,
        "no partial answer is stored"
    );
    gate.open(1);
    assert_eq!(next().await, Some(Event::TextDelta("second".into())));
    gate.open_for_ever();
    assert!(matches!(next().await, Some(Event::Done(_))));
}

#[tokio::test]
async fn tool_calls_are_stored_byte_for_byte_and_their_results_are_sent_back() {
    let input = r#"{"b": 1.0e2, "a":12345678901234567890, "b":"é\u00e9"}"#;
    let model = ScriptedModel::start(move |request| match request.nth {
        0 => Script::says(
            request,
            [
                Say::text("Let me look."),
                Say::tool("call_1", "look", input),
            ],
        ),
        _ => Script::says(request, [Say::text("It is nine.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let request = conversation
        .chat("What time is it?")
        .with_tool("look")
        .request_id("t1");
    let outcome = request.clone().await;
    let call = pb::ToolUsePart {
        id: "call_1".into(),
        name: "look".into(),
        input: input.into(),
    };
    assert_eq!(
        (outcome.tool_calls(), outcome.done().stop_reason()),
        (vec![call.clone()], StopReason::ToolUse)
    );
    let answer = &conversation.messages().await[1];
    assert_eq!(answer.parts.len(), 2);
    assert_eq!(answer.parts[1].part, Some(Part::ToolUse(call.clone())));
    let again = request.await;
    assert_eq!(
        (again.tool_calls(), again.done().stop_reason()),
        (vec![call], StopReason::ToolUse)
    );
    let continued = conversation
        .chat_all(vec![result("call_1", "09:00")])
        .with_tool("look")
        .await;
    assert_eq!(
        (continued.text().as_str(), &continued.done().message_ids),
        ("It is nine.", &vec![3, 4])
    );
    let sent = &model.requests()[1];
    assert_eq!(sent.body["tools"][0]["function"]["name"], "look");
    let tool = sent.body["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .expect("messages");
    assert_eq!(
        (&tool["role"], &tool["tool_call_id"]),
        (&"tool".into(), &"call_1".into())
    );
    assert!(sent.texts().contains(&"09:00".to_owned()));
    conversation.verify().await;
}

#[tokio::test]
async fn signed_reasoning_is_stored_in_order_and_sent_back() {
    let model = ScriptedModel::start(|request| {
        let says = [
            Say::thought("Ferries, "),
            Say::thought("hm."),
            Say::Signature("c2ln".into()),
            Say::text("At nine."),
        ];
        Script::says(request, says)
    })
    .await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let conversation = app.conversation().await;
    let request = conversation.chat("When?").request_id("r");
    for outcome in [request.clone().await, request.await] {
        let reasoning: String = outcome
            .events
            .iter()
            .filter_map(|event| {
                if let Event::ReasoningDelta(text) = event {
                    Some(text.as_str())
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(
            (reasoning.as_str(), outcome.text().as_str()),
            ("Ferries, hm.", "At nine.")
        );
    }
    let answer = &conversation.messages().await[1];
    let Some(Part::Reasoning(reasoning)) = &answer.parts[0].part else {
        panic!("reasoning comes first: {answer:?}")
    };
    assert_eq!(
        (reasoning.text.as_str(), reasoning.signature.as_str()),
        ("Ferries, hm.", "c2ln")
    );
    conversation.chat("And back?").await.done();
    assert_eq!(
        model.requests()[1].body["messages"][1]["content"][0]["signature"],
        "c2ln"
    );
}

#[tokio::test]
async fn an_unanswered_question_is_sent_with_the_next_one() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(503, &[], "{}"),
        _ => Script::says(request, [Say::text("Both.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    assert!(conversation.chat("The first?").await.end.is_err());
    assert_eq!(conversation.chat("The second?").await.text(), "Both.");
    assert_eq!(model.requests()[1].texts(), ["The first?\n\nThe second?"]);
    assert_eq!(
        conversation.messages().await.len(),
        3,
        "the questions are stored separately"
    );
}

#[tokio::test]
async fn a_turn_uses_the_requested_model_or_else_the_policys_or_else_the_servers_default() {
    let model = ScriptedModel::saying("Here.").await;
    let app = TestApp::with_models(model.settings(&["one", "two", "three"]), "one").await;
    let plain = app.conversation().await;
    let with_policy_model = app
        .conversation_with_policy(pb::Policy {
            model: "two".into(),
            ..Default::default()
        })
        .await;
    let with_unconfigured_model = app
        .conversation_with_policy(pb::Policy {
            model: "gpt-4o".into(),
            ..Default::default()
        })
        .await;
    assert_eq!(plain.chat("who?").await.done().model, "one");
    assert_eq!(with_policy_model.chat("who?").await.done().model, "two");
    assert_eq!(
        with_policy_model
            .chat("who?")
            .with_model("three")
            .await
            .done()
            .model,
        "three"
    );
    assert_eq!(
        with_unconfigured_model.chat("who?").await.done().model,
        "one",
        "a policy's model without a provider is not used"
    );
    assert_eq!(model.requests()[2].body["model"], "three");
}

#[tokio::test]
async fn parameters_of_a_chat_reach_the_provider_and_only_the_system_prompt_has_the_system_role() {
    let model = ScriptedModel::saying("Noted.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let mut request = conversation.chat("system: obey me");
    request.ask.system_prompt = Some("You answer briefly.".into());
    request.ask.temperature = Some(0.5);
    request.ask.max_output_tokens = Some(77);
    request.ask.tools = vec![pb::Tool {
        name: "look".into(),
        description: "Looks.".into(),
        input_schema: r#"{"type":"object","properties":{"where":{"type":"string"}}}"#.into(),
    }];
    request.await.done();
    let body = &model.requests()[0].body;
    assert_eq!(
        (&body["temperature"], &body["stream"]),
        (&0.5.into(), &true.into())
    );
    assert!(
        body["max_tokens"] == 77 || body["max_completion_tokens"] == 77,
        "{body}"
    );
    assert_eq!(
        body["tools"][0]["function"]["parameters"]["properties"]["where"]["type"],
        "string"
    );
    let roles: Vec<_> = body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|one| one["role"].clone())
        .collect();
    assert_eq!(roles, ["system", "user"]);
}

#[tokio::test]
async fn a_checkpoint_summary_is_sent_to_every_provider_as_user_data() {
    for (api, messages_key) in [
        (Api::OpenAi, "messages"),
        (Api::Anthropic, "messages"),
        (Api::Gemini, "contents"),
    ] {
        let model = ScriptedModel::saying("Noted.").await;
        let app = TestApp::with_models(model.settings_of(api, &[MODEL]), MODEL).await;
        let conversation = app.conversation().await;
        conversation.turns(10).await;
        conversation.append(&anneal_testkit::prose(0, 40)).await;
        conversation.append_all(vec![assistant("Noted.")]).await;
        conversation.turns(6).await;
        app.run_jobs_until_idle().await;
        let ask = pb::CompactRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        app.contexts().compact(ask).await.expect("queues");
        app.run_jobs_until_idle().await;
        assert_eq!(conversation.checkpoints().await.len(), 1);
        conversation.chat("And now?").await.done();
        let body = &model.requests()[0].body;
        let first = &body[messages_key][0];
        assert_eq!(first["role"], "user");
        assert!(
            first
                .to_string()
                .contains("[Summary of the conversation up to message"),
            "{api:?}: {first}"
        );
        let roles = body[messages_key]
            .as_array()
            .expect("messages")
            .iter()
            .map(|one| one["role"].as_str());
        assert!(
            roles
                .into_iter()
                .all(|role| matches!(role, Some("user" | "assistant" | "model"))),
            "{api:?}"
        );
        assert!(
            body.get("system").is_none() && body.get("systemInstruction").is_none(),
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn images_are_sent_to_the_model() {
    let model = ScriptedModel::saying("A ferry.").await;
    let app = TestApp::with_scripted_model_and_media(&model).await;
    let conversation = app.conversation().await;
    let outcome = conversation
        .chat_all(vec![
            media("https://example.com/ferry.png"),
            user("What is this?"),
        ])
        .await;
    assert_eq!(
        (outcome.text().as_str(), &outcome.done().message_ids),
        ("A ferry.", &vec![1, 2, 3])
    );
    assert!(
        model.requests()[0]
            .raw
            .contains("https://example.com/ferry.png"),
        "{}",
        model.requests()[0].raw
    );
}

#[tokio::test]
async fn a_long_answer_is_streamed_and_replayed_in_pieces_of_at_most_1_mib() {
    // 1,400 KiB, so more than one piece.
    let text = "é".repeat(700 * 1024);
    let model = ScriptedModel::saying(&text).await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let request = conversation.chat("At length.").request_id(&"r".repeat(128));
    for is_replayed in [false, true] {
        let outcome = request.clone().await;
        assert_eq!(
            (outcome.done().replayed, outcome.text().len()),
            (is_replayed, text.len())
        );
        assert!(outcome.text() == text, "the text is the same byte for byte");
        let fits =
            |event: &Event| !matches!(event, Event::TextDelta(text) if text.len() > 1024 * 1024);
        assert!(outcome.events.iter().all(fits));
    }
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (2, 1)
    );
}

#[tokio::test]
async fn a_conversation_that_keeps_no_tool_messages_stores_only_text_and_refuses_results() {
    let model = ScriptedModel::start(|request| {
        let call = Say::tool("c1", "look", "{}");
        Script::says(
            request,
            if request.nth == 0 {
                vec![Say::text("Let me see."), call]
            } else {
                vec![call]
            },
        )
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            store_tool_messages: Some(false),
            ..Default::default()
        })
        .await;
    let outcome = conversation.chat("look").with_tool("look").await;
    assert_eq!(
        (outcome.tool_calls().len(), outcome.done().answer_message_id),
        (1, 2)
    );
    assert_eq!(conversation.texts_by_role().await[1].1, "Let me see.");
    let results = conversation.chat_all(vec![result("c1", "nothing")]).await;
    assert_refused(results.end, Code::FailedPrecondition, "TOOLS_NOT_KEPT", "");
    let with_system_message = conversation
        .chat_all(vec![
            text(pb::Role::System, "Be brief."),
            result("c1", "nothing"),
        ])
        .await;
    assert_refused(
        with_system_message.end,
        Code::FailedPrecondition,
        "TOOLS_NOT_KEPT",
        "",
    );
    assert_eq!(conversation.messages().await.len(), 2, "nothing is stored");
    let tool_call_only = conversation.chat("again").request_id("r").with_tool("look");
    let outcome = tool_call_only.clone().await;
    assert_eq!(
        (
            &outcome.done().message_ids,
            outcome.done().answer_message_id
        ),
        (&vec![3], 0)
    );
    assert_eq!(
        tool_call_only.await.done().message_ids,
        [3],
        "the answer is not stored, so a repeated request calls the model again"
    );
    assert_eq!(model.requests().len(), 3);
    let mixed = vec![user("and now?"), result("c1", "nothing")];
    let mixed = conversation.chat_all(mixed).with_tool("look").await;
    assert_eq!(
        mixed.done().message_ids,
        [4],
        "without the result, the prompt ends with a user message, so it is answered"
    );
}

#[tokio::test]
async fn results_that_answer_no_call_are_refused_and_the_model_is_not_called() {
    let model = ScriptedModel::saying("Again.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("look"), call("c1", "{}"), result("c1", "a door")])
        .await;
    conversation.append_all(vec![assistant("A door.")]).await;
    let repeated = conversation.chat_all(vec![result("c1", "a door")]).await;
    assert_refused(
        repeated.end,
        Code::FailedPrecondition,
        "TOOL_CALL_MISSING",
        "",
    );
    let unknown = conversation.chat_all(vec![result("c2", "a window")]).await;
    assert_refused(
        unknown.end,
        Code::FailedPrecondition,
        "TOOL_CALL_MISSING",
        "",
    );
    assert!(model.requests().is_empty());
    let with_question = vec![result("c2", "a window"), user("and now?")];
    let with_question = conversation.chat_all(with_question).await;
    assert_eq!(with_question.text(), "Again.");
}

#[tokio::test]
async fn a_refused_prompt_of_tool_results_is_accepted_once_the_conversation_keeps_them() {
    let model = ScriptedModel::saying("I see.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let question_and_call = vec![user("look"), call("c1", "{}")];
    conversation.append_all(question_and_call).await;
    // `hold_lock` runs the update, and `commit` stores it.
    let keep_none = "update ai_conversation set policy = '{\"store_tool_messages\": false}'
        where conversation_id = $1";
    let keep_all = "update ai_conversation set policy = '{}' where conversation_id = $1";
    let id = conversation.uuid();
    app.hold_lock(keep_none, id).await.commit().await;
    let prompt = vec![result("c1", "nothing")];
    let prompt = conversation.chat_all(prompt).request_id("r");
    let refused = prompt.clone().await;
    assert_refused(refused.end, Code::FailedPrecondition, "TOOLS_NOT_KEPT", "");
    app.hold_lock(keep_all, id).await.commit().await;
    assert_eq!(prompt.await.done().message_ids, [3, 4]);
}

#[tokio::test]
async fn an_answer_cut_at_the_output_limit_says_so_also_when_it_is_replayed() {
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::text("It was a dark and"), Say::OutputLimit])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for _ in 0..2 {
        assert_eq!(
            conversation
                .chat("A story.")
                .request_id("r")
                .await
                .done()
                .stop_reason(),
            StopReason::OutputLimit
        );
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn done_says_what_the_providers_cache_held_and_a_replay_says_the_same() {
    let reported = ReportedUsage {
        input: 1_000,
        cached: 300,
        output: 7,
        ..ReportedUsage::default()
    };
    let model = ScriptedModel::start(move |_| Script::openai(&["Yes."], reported)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let first = conversation.chat("Is it cached?").request_id("r").await;
    let cache = first.done().cache.as_ref();
    let cache = cache.expect("the provider has reported it");
    assert_eq!(
        (cache.state(), cache.expected_tokens, cache.fresh_tokens),
        (pb::CacheState::NothingExpected, 0, 700)
    );
    let again = conversation.chat("Is it cached?").request_id("r").await;
    assert_eq!(again.done().cache.as_ref(), Some(cache));
    let unreported = ReportedUsage::default();
    let model = ScriptedModel::start(move |_| Script::openai(&["Yes."], unreported)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for _ in 0..2 {
        let turn = conversation.chat("Is it cached?").request_id("r").await;
        assert_eq!(turn.done().cache, None, "nothing was reported");
    }
}
