-- A naive implementation takes message ids from a sequence. A sequence takes no part in
-- transactions: an append that is rolled back, or lost in a crash, leaves a gap.
create schema sabotage;

create function sabotage.take_ids() returns trigger language plpgsql security definer as $$
declare
    name constant text := format('sabotage.%I', new.conversation_id);
begin
    execute format('create sequence if not exists %s', name);
    for taken in 1 .. new.last_message_id - old.last_message_id loop
        new.last_message_id := nextval(name);
    end loop;
    return new;
end
$$;

create trigger sabotage before update on ai_conversation
for each row when (new.last_message_id > old.last_message_id) execute function sabotage.take_ids();
