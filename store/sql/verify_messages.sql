-- The messages after $3, at most $4, with the columns that a check needs. "digest_matches" says
-- whether the content has its stored digest, which the database computes again here. "is_empty"
-- says whether nothing of a message is left in its row, as it must be of a withdrawn one. It looks
-- at the content last, so that the content of other messages is not decompressed once more.
select message_id, role, turn, content_digest, coalesce(token_count, token_estimate) as "tokens!",
    token_count is not null as "counted!",
    sha256(convert_to(content::text, 'UTF8')) = content_digest as "digest_matches!",
    withdrawn_ts is not null as "withdrawn!",
    text_bytes = 0 and content_bytes = 0 and token_estimate = 0 and tool_outline is null and metadata is null
        and summary_cache is null and summary_change_id is null and content::text = '[]' as "is_empty!",
    summary_cache is not null as "has_summary!", coalesce(summary_change_id, 0) as "summary_change_id!",
    coalesce((extract(epoch from summary_ts) * 1000000)::bigint, 0) as "summary_us!"
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and message_id > $3
order by message_id
limit $4
