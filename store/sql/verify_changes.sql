-- The changes of a conversation's messages before the change $3, newest first, at most $4. "void_rows"
-- is the number of checkpoints that are stored as having been set aside by the change.
-- "changes_content" is false of an edit of labels alone, and of an edit whose earlier version was
-- erased since.
select c.change_id, c.kind, c.first_ids, c.last_ids, c.void_checkpoints,
    (
        select count(*) from ai_void_checkpoint
        where tenant_id = $1
          and conversation_id = $2
          and void_change_id = c.change_id
    ) as "void_rows!",
    c.kind <> 3 or exists (
        select from ai_message_version as old
        where old.tenant_id = $1
          and old.conversation_id = $2
          and old.message_id = c.first_ids[1]
          and old.version = c.version - 1
          and old.content_digest is distinct from coalesce(
              (
                  select content_digest from ai_message_version
                  where tenant_id = $1
                    and conversation_id = $2
                    and message_id = c.first_ids[1]
                    and version = c.version
              ),
              (
                  select content_digest from ai_message
                  where tenant_id = $1
                    and conversation_id = $2
                    and message_id = c.first_ids[1]
              )
          )
    ) as "changes_content!",
    (extract(epoch from c.created_ts) * 1000000)::bigint as "created_us!"
from ai_message_change as c
where c.tenant_id = $1
  and c.conversation_id = $2
  and c.change_id < $3
order by c.change_id desc
limit $4
