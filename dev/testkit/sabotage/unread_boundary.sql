-- A naive implementation lets a checkpoint cover all messages that exist when it is committed, not
-- those that its summarizer has read.
create schema sabotage;

create function sabotage.cover_newest() returns trigger language plpgsql security definer as $$
begin
    select last_message_id into strict new.last_message_id from ai_conversation
    where conversation_id = new.conversation_id;
    return new;
end
$$;

create trigger sabotage before insert on ai_conversation_checkpoint
for each row execute function sabotage.cover_newest();
