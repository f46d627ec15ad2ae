-- The newest 10,000 checkpoints and the newest 10,000 separators of a conversation, in no order, to
-- compute its past calls. "summary_tokens" are the tokens of the checkpoint's summary; null: the
-- row is a separator. "read" and "written" are the tokens that models read and wrote to make the
-- summary.
(
    select last_message_id as "after!", token_usage as "summary_tokens?", input_tokens as "read!", output_tokens as "written!",
        (extract(epoch from created_ts) * 1000000)::bigint as "at_us!"
    from ai_conversation_checkpoint
    where tenant_id = $1
      and conversation_id = $2
    order by last_message_id desc
    limit 10000
)
union all
(
    select after_message_id, null, 0, 0, (extract(epoch from created_ts) * 1000000)::bigint
    from ai_separator
    where tenant_id = $1
      and conversation_id = $2
    order by after_message_id desc
    limit 10000
)
