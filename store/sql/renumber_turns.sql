-- Gives the messages from $3 to $4 that stand their turns, as if only messages that stand had ever
-- been appended. Returns the first message after $4 that stands, and by how much its turn has to
-- change: the turns of all messages after it change by as much (store/src/changes/turns.rs). A turn
-- starts at a user's message (role 1) whose predecessor is not a user's, as in core/src/turn.rs.
-- The caller has locked the conversation's row.
with base as (
    select role, turn from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id < $3
      and withdrawn_ts is null
    order by message_id desc
    limit 1
), following as (
    select message_id from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id > $4
      and withdrawn_ts is null
    order by message_id
    limit 1
), numbered as (
    select message_id, turn as old_turn,
        (coalesce((select turn from base), 0)
            + sum(case when role = 1 and previous_role is distinct from 1 then 1 else 0 end) over (order by message_id)
        )::integer as new_turn
    from (
        select message_id, turn, role,
            coalesce(lag(role) over (order by message_id), (select role from base)) as previous_role
        from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id >= $3
          -- greatest ignores null. Under row-level security, coalesce could not be an index
          -- condition.
          and message_id <= greatest((select message_id from following), $4)
          and withdrawn_ts is null
    ) as standing
), changed as (
    update ai_message as m
    set turn = n.new_turn
    from numbered as n
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = n.message_id
      and n.new_turn <> n.old_turn
)
select n.message_id as "message_id!", n.new_turn - n.old_turn as "shift!"
from numbered as n
join following on following.message_id = n.message_id
