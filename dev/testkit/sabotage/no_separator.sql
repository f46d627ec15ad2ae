-- A naive implementation does not look for a new separator when it commits a checkpoint. A
-- checkpoint that was planned before the newest separator is then stored as if it had been planned
-- after that separator. `NO_SEPARATOR` in dev/testkit/src/chaos/sabotage.rs makes the check at the
-- commit read the separator that was the newest when the job was claimed.
create schema sabotage;
grant usage on schema sabotage to public;
create table sabotage.planned (conversation_id uuid primary key, separator bigint);

create function sabotage.remember_separator() returns trigger language plpgsql security definer as $$
begin
    insert into sabotage.planned (conversation_id, separator)
    select new.conversation_id, max(after_message_id) from ai_separator
    where conversation_id = new.conversation_id
    on conflict (conversation_id) do update set separator = excluded.separator;
    return null;
end
$$;

create trigger sabotage after update on ai_job
for each row when (new.kind = 2 and old.state = 0 and new.state = 1) execute function sabotage.remember_separator();

-- While a checkpoint job runs: the separator that was the newest when the job was claimed.
-- Otherwise: the newest separator.
create function sabotage.separator_of(conversation uuid) returns bigint language sql stable security definer as $$
    select case
        when exists (select from ai_job where kind = 2 and conversation_id = conversation and state = 1)
            then (select separator from sabotage.planned where conversation_id = conversation)
        else (select max(after_message_id) from ai_separator where conversation_id = conversation)
    end
$$;

-- Like context_boundary, but with the separator that separator_of returns.
create function sabotage.boundary_of(conversation uuid) returns table (separator bigint, checkpoint_last bigint)
language sql stable security definer as $$
    select s.separator, (
        select max(last_message_id) from ai_conversation_checkpoint
        where conversation_id = conversation
          and first_message_id = coalesce(s.separator, 0) + 1
    )
    from (select sabotage.separator_of(conversation) as separator) as s
$$;

-- Lets a checkpoint begin after the newest separator, whichever separator it was planned with.
create function sabotage.follow_newest_separator() returns trigger language plpgsql security definer as $$
declare
    first_id bigint;
begin
    select coalesce(max(after_message_id), 0) + 1 into strict first_id from ai_separator
    where conversation_id = new.conversation_id;
    if first_id <> new.first_message_id then
        new.first_message_id := first_id;
        new.last_message_id := greatest(new.last_message_id, first_id);
        select max(last_message_id) into strict new.previous_message_id from ai_conversation_checkpoint
        where conversation_id = new.conversation_id
          and first_message_id = first_id;
    end if;
    return new;
end
$$;

create trigger sabotage before insert on ai_conversation_checkpoint
for each row execute function sabotage.follow_newest_separator();
