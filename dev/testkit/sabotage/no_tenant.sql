-- A naive implementation does not check which tenant owns the conversation that is read.
-- `NO_TENANT` in dev/testkit/src/chaos/sabotage.rs removes the tenant from the statements of
-- GetConversation and ListMessages. These policies make row-level security allow every row.
do $$
declare
    name text;
begin
    for name in
        select relname from pg_class
        where relrowsecurity
          and relnamespace = current_schema()::regnamespace
    loop
        execute format('create policy sabotage on %I using (true)', name);
    end loop;
end
$$;
