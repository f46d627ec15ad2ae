-- The messages that a context leaves out because newer ones fill its content limit: those of the
-- tail from which on the bytes of the newest messages exceed $8, without the newest message. Rows in
-- no order. "kept": the newest user message that is not withdrawn; it is read all the same.
--
-- The bytes of a message are counted as in context_material.sql, and so are the messages swapped.
-- The parameters are what that statement has found in the same snapshot, and its settings: $3 is the
-- boundary, $4 the turn before which messages are cool, $5 the tokens above which a message is
-- large, $6 whether cooling is stepped, $7 the messages that an earlier step has swapped.
select message_id as "message_id!", turn as "turn!", tokens as "tokens!", kept as "kept!", withdrawn as "withdrawn!",
    role = 2 as "answer!", created_ts as "stored!: StoredTime"
from (
    -- All window functions share one window, which PostgreSQL computes row by row. A second window
    -- over the whole tail would write the tail to a temporary file.
    select message_id, role, turn, tokens, created_ts, withdrawn,
        role = 1 and not withdrawn and count(*) filter (where role = 1 and not withdrawn) over newest = 1 as kept,
        row_number() over newest as place,
        sum(bytes) over newest as newest_bytes
    from (
        select message_id, role, turn, created_ts, coalesce(token_count, token_estimate) as tokens,
            withdrawn_ts is not null as withdrawn,
            case
                when summary_tokens is null then coalesce(content_bytes, octet_length(content::text))
                when case
                    when $6::boolean then message_id = any ($7::bigint[])
                    else token_count > $5::bigint and turn < $4::bigint
                end then octet_length(summary_cache) + coalesce(octet_length(tool_outline::text), 0)
                else coalesce(content_bytes, octet_length(content::text))
                    + case when $6::boolean and token_count > $5::bigint then octet_length(summary_cache) else 0 end
            end + 512 as bytes
        from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id > $3
    ) as tail
    window newest as (order by message_id desc rows unbounded preceding)
) as m
where place > 1
  and newest_bytes > $8::bigint
