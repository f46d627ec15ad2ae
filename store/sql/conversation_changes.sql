-- Changes of a conversation (stored summaries and checkpoints) with change ids greater than $3 and
-- up to $4, in their order, at most $7. Of those with change ids up to $6, only the ones that
-- concern messages after $5.
select change.change_id as "change_id!", change.message_id as "message_id!", change.summary_tokens as "summary_tokens!",
    change.tokens as "tokens?", change.kind as "kind!", change.trigger_kind as "trigger_kind?"
from (
    (
        select summary_change_id as change_id, message_id, summary_tokens,
            coalesce(token_count, token_estimate) as tokens, summary_kind as kind, null::smallint as trigger_kind
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
        select change_id, last_message_id, token_usage, null, kind, trigger_kind
        from ai_conversation_checkpoint
        where tenant_id = $1
          and conversation_id = $2
          and change_id > $3
          and change_id <= $4
          and (change_id > $6::bigint or last_message_id > $5::bigint)
        order by change_id
        limit $7
    )
) as change
order by change.change_id
limit $7
