-- A naive implementation looks up cached summaries by their kind, not by their message: every large
-- message gets the first summary of that kind.
create schema sabotage;
create table sabotage.first_summary (kind smallint primary key, summary text, tokens bigint, model text);

create function sabotage.replace_summary() returns trigger language plpgsql security definer as $$
begin
    insert into sabotage.first_summary (kind, summary, tokens, model)
    values (new.summary_kind, new.summary_cache, new.summary_tokens, new.summary_model)
    on conflict (kind) do nothing;
    select summary, tokens, model into strict new.summary_cache, new.summary_tokens, new.summary_model
    from sabotage.first_summary
    where kind = new.summary_kind;
    return new;
end
$$;

create trigger sabotage before update on ai_message
for each row when (old.summary_cache is null and new.summary_cache is not null)
execute function sabotage.replace_summary();
