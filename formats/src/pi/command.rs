//! Commands that the user ran: the words in which pi sends them to the model, and their form in
//! pi's file, which is kept beside the words.

use crate::json::{self, Fields, Unreadable, quoted};

/// The role of a command.
pub(super) const ROLE: &str = "bashExecution";
/// The label (without `pi.`) of a command's form: the message as pi wrote it, with empty texts in
/// place of the command and its output. These are in the words alone, so an edit of the words
/// leaves nothing of them.
pub(super) const FORM: &str = "message";

/// The words before a command.
const START: &str = "Ran `";
/// The words after a command without output.
const NO_OUTPUT: &str = "`\n(no output)";
/// The words before and after an output.
const OUTPUT: [&str; 2] = ["`\n```\n", "\n```"];

/// A command in the words that pi sends to the model.
pub(super) fn words(message: &Fields) -> Result<String, Unreadable> {
    let command = message.required_text("command")?;
    let output = message.text("output")?.unwrap_or_default();
    let output = if output.is_empty() {
        NO_OUTPUT.to_owned()
    } else {
        format!("{}{output}{}", OUTPUT[0], OUTPUT[1])
    };
    Ok(format!("{START}{command}{output}{}", end(message)?))
}

/// The words about the end of a command, after its output.
fn end(message: &Fields) -> Result<String, Unreadable> {
    let code = match message.raw("exitCode") {
        _ if message.is_true("cancelled") => "\n\n(command cancelled)".to_owned(),
        Some(code) if code != "0" => format!("\n\nCommand exited with code {code}"),
        _ => String::new(),
    };
    let path = message
        .text("fullOutputPath")?
        .filter(|path| message.is_true("truncated") && !path.is_empty());
    let path = path
        .map(|path| format!("\n\n[Output truncated. Full output: {path}]"))
        .unwrap_or_default();
    Ok(code + &path)
}

/// The form of a command. None: [`restore`] would not make the same command of it and the words,
/// because the words do not show where the command ends.
pub(super) fn form(message: &Fields) -> Result<Option<String>, Unreadable> {
    let command = message.required_text("command")?;
    let output = message.text("output")?.unwrap_or_default();
    let form = with_texts(message, "", "");
    let is_restored =
        restore(&form, &words(message)?) == Some(with_texts(message, &command, &output));
    Ok(is_restored.then_some(form))
}

/// The command of a form and of words. None: these are not the words of a command with this form.
pub(super) fn restore(form: &str, words_of_command: &str) -> Option<String> {
    let form = Fields::parse(form).ok()?;
    let said = words_of_command
        .strip_prefix(START)?
        .strip_suffix(end(&form).ok()?.as_str())?;
    let (command, output) = match said.strip_suffix(NO_OUTPUT) {
        Some(command) => (command, ""),
        None => said.strip_suffix(OUTPUT[1])?.split_once(OUTPUT[0])?,
    };
    let message = with_texts(&form, command, output);
    let restored = words(&Fields::parse(&message).ok()?).ok()?;
    (restored == words_of_command).then_some(message)
}

/// The fields as a JSON object, with other texts as `command` and `output`, where these are texts.
fn with_texts(message: &Fields, command: &str, output: &str) -> String {
    let fields = message.0.iter().map(|(name, raw)| {
        let is_text = json::is_text(raw.get());
        let value = match name.as_str() {
            "command" if is_text => quoted(command),
            "output" if is_text => quoted(output),
            _ => raw.get().to_owned(),
        };
        format!("{}:{value}", quoted(name))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, output: &str, others: &str) -> String {
        let (command, output) = (quoted(command), quoted(output));
        format!("{{\"command\":{command},{others}\"output\":{output},\"role\":\"{ROLE}\"}}")
    }

    fn value(message: &str) -> serde_json::Value {
        serde_json::from_str(message).expect("JSON")
    }

    fn form_and_words(message: &str) -> (Option<String>, String) {
        let fields = Fields::parse(message).expect("an object");
        let form = form(&fields).expect("is readable");
        (form, words(&fields).expect("is readable"))
    }

    #[test]
    fn a_command_is_restored_from_its_words_and_the_form_says_none_of_them() {
        let cut = "\"exitCode\":1.0,\"fullOutputPath\":\"/tmp/all\",\"truncated\":true,";
        for (command, output, others) in [
            ("pwd", "/home", ""),
            ("true", "", "\"exitCode\":0,"),
            ("", "", "\"cancelled\":true,"),
            ("cat `x`", "a\n```\nb\n```\n`\n```\nc`\n(no output)", cut),
            ("a\nb", "\"\\\u{1}冷\n\n```", "\"exitCode\":null,"),
        ] {
            let message = of(command, output, others);
            let (form, words) = form_and_words(&message);
            let form = form.expect("is kept");
            assert_eq!(value(&form), value(&of("", "", others)));
            let restored = restore(&form, &words).expect("is restored");
            assert_eq!(value(&restored), value(&message));
        }
    }

    #[test]
    fn other_words_are_no_command_of_the_form() {
        let (form, _) = form_and_words(&of("pwd", "/home", "\"exitCode\":2,"));
        let form = form.expect("is kept");
        for words in [
            "",
            "I am at home.",
            "Ran `pwd`\n```\n/home\n```",
            "Ran `pwd`",
        ] {
            assert_eq!(restore(&form, words), None, "{words}");
        }
        let edited = "Ran `ls`\n(no output)\n\nCommand exited with code 2";
        let restored = restore(&form, edited).expect("is another command");
        assert_eq!(value(&restored), value(&of("ls", "", "\"exitCode\":2,")));
    }

    #[test]
    fn a_command_whose_end_the_words_do_not_show_has_no_form() {
        let (form, _) = form_and_words(&of("cat <<'`\n```\n", "x", ""));
        assert_eq!(form, None);
    }
}
