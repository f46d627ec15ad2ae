-- The messages after $3 up to $4 as a summarizer reads them. A message of more than $5 tokens that
-- has a summary comes as its summary.
select message_id, role, content_digest,
    case when summary_cache is not null and token_count > $5 then null else content::text end as content,
    case when token_count > $5 then summary_cache end as summary_cache
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and message_id > $3
  and message_id <= $4
order by message_id
