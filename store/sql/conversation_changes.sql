-- Changes of a conversation (stored summaries, stored checkpoints, changes of messages) with change
-- ids greater than $3 and up to $4, in their order, at most $7. Of the summaries and checkpoints
-- with change ids up to $6, only the ones that concern messages after $5. Kinds of changes of
-- messages that only a newer version knows are left out; servers of that version report them.
select change.change_id as "change_id!", change.message_id as "message_id?", change.summary_tokens as "summary_tokens?",
    change.tokens as "tokens?", change.summary_kind as "summary_kind?", change.trigger_kind as "trigger_kind?",
    change.message_change as "message_change?", change.first_ids as "first_ids?", change.last_ids as "last_ids?",
    change.version as "version?"
from (
    (
        select summary_change_id as change_id, message_id, summary_tokens,
            coalesce(token_count, token_estimate) as tokens, summary_kind, null::smallint as trigger_kind,
            null::smallint as message_change, null::bigint[] as first_ids, null::bigint[] as last_ids, null::integer as version
        from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and summary_change_id > $3
          and summary_change_id <= $4
          and (summary_change_id > $6::bigint or message_id > $5::bigint)
        order by summary_change_id
        limit $7
    )
    union all
    (
        select change_id, last_message_id, token_usage, null, kind, trigger_kind, null, null, null, null
        from ai_conversation_checkpoint
        where tenant_id = $1
          and conversation_id = $2
          and change_id > $3
          and change_id <= $4
          and (change_id > $6::bigint or last_message_id > $5::bigint)
        order by change_id
        limit $7
    )
    union all
    (
        select change_id, null, null, null, null, null, kind, first_ids, last_ids, version
        from ai_message_change
        where tenant_id = $1
          and conversation_id = $2
          and change_id > $3
          and change_id <= $4
          and kind between 1 and 4
        order by change_id
        limit $7
    )
) as change
order by change.change_id
limit $7
