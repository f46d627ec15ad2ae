-- Whether the next context of a conversation would begin like that of an answer ($3): the answer
-- stands, no message follows it, no turn is under way, and no change of messages came after the
-- change $4. The boundary is still after the message $5, and $6 is the SHA-256 digest of the system
-- prompt.
select exists (
    select from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = $3
      and withdrawn_ts is null
) and not exists (
    select from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id > $3
) and not exists (
    select from ai_model_lease
    where tenant_id = $1
      and conversation_id = $2
      and turn
      and lease_until_ts > now()
) and not exists (
    select from ai_message_change
    where tenant_id = $1
      and conversation_id = $2
      and change_id > $4
) and exists (
    select from ai_conversation as c
    cross join lateral context_boundary(c.conversation_id) as b
    where c.tenant_id = $1
      and c.conversation_id = $2
      and b.boundary = $5
      and sha256(convert_to(c.system_prompt, 'UTF8')) = $6
) as "idle!"
