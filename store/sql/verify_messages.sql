-- The messages after $3, at most $4, with the columns that a check needs. "digest_matches" says
-- whether the content has its stored digest, which the database computes again here.
select message_id, role, turn, content_digest, coalesce(token_count, token_estimate) as "tokens!",
    token_count is not null as "counted!",
    sha256(convert_to(content::text, 'UTF8')) = content_digest as "digest_matches!"
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and message_id > $3
order by message_id
limit $4
