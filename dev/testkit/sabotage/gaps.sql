-- A naive implementation only guarantees that ids increase: each append leaves a gap.
create schema sabotage;

create function sabotage.skip_id() returns trigger language plpgsql as $$
begin
    new.last_message_id := new.last_message_id + 1;
    return new;
end
$$;

create trigger sabotage before update on ai_conversation
for each row when (new.last_message_id > old.last_message_id) execute function sabotage.skip_id();
