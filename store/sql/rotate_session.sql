-- Replaces a session's active conversation ($3) by a new one ($4), and archives the old one. Does
-- nothing if the old one is no longer active. The caller has locked the old one's row. $5 to $13:
-- the attributes of the new one. An attribute that is null is copied from the old one, as the options
-- of turns are, except for title ($7) and pinned ($8): null makes them empty and false. $14: the
-- digest of the request, if the request has an id.
with rotated as (
    update ai_session
    set conversation_id = $4, rotated_ts = now()
    where tenant_id = $1
      and session_key = $2
      and conversation_id = $3
    returning session_key
), archived as (
    update ai_conversation
    set status = 2, revision = revision + 1
    from rotated
    where tenant_id = $1
      and conversation_id = $3
)
insert into ai_conversation (
    tenant_id, conversation_id, agent_id, user_id, title, title_given, pinned, metadata, system_prompt, system_prompt_tokens,
    policy, encoding, create_digest, session_key, chat_options
)
select $1, $4, coalesce($5, old.agent_id), coalesce($6, old.user_id), coalesce($7, ''), coalesce($7, '') <> '',
    coalesce($8, false), coalesce($9::text::jsonb, old.metadata), coalesce($10, old.system_prompt),
    coalesce($11, old.system_prompt_tokens), coalesce($12::text::jsonb, old.policy), coalesce($13, old.encoding), $14,
    rotated.session_key, old.chat_options
from rotated
join ai_conversation as old
  on old.tenant_id = $1
 and old.conversation_id = $3
