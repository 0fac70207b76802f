%% Erlang/OTP: gen_server:call between two nodes on this machine.
%%
%% "serve NAME" runs the server. "call NAME SERVER" reads lines from its input, "one COUNT" or "many CALLERS MILLISECONDS",
%% and answers each with one line: the median time of a call in microseconds, or calls per second.
-mode(compile).
-export([main/1, init/1, handle_call/3, handle_cast/2]).

main(["serve", Name]) ->
    start_node(Name),
    {ok, _} = gen_server:start({local, echo}, ?MODULE, [], []),
    io:format("listens on 127.0.0.1:0~n"),
    io:get_line("");
main(["call", Name, Server]) ->
    start_node(Name),
    Echo = {echo, list_to_atom(Server ++ "@localhost")},
    obey(Echo).

start_node(Name) ->
    {ok, _} = net_kernel:start([list_to_atom(Name ++ "@localhost"), shortnames]),
    erlang:set_cookie(node(), bench).

init([]) -> {ok, none}.
handle_call({echo, Body}, _, State) -> {reply, Body, State}.
handle_cast(_, State) -> {noreply, State}.

obey(Echo) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            Answer = case string:tokens(string:trim(Line), " ") of
                ["one", Count] -> one(Echo, list_to_integer(Count));
                ["many", Callers, Time] -> many(Echo, list_to_integer(Callers), list_to_integer(Time))
            end,
            io:format("answer ~p~n", [Answer]),
            obey(Echo)
    end.

call(Echo, Body) -> gen_server:call(Echo, {echo, Body}, infinity).

one(Echo, Count) ->
    Body = binary:copy(<<7>>, 64),
    [call(Echo, Body) || _ <- lists:seq(1, Count div 10)],
    Times = lists:sort([timed(Echo, Body) || _ <- lists:seq(1, Count)]),
    lists:nth(Count div 2, Times) / 1000.

timed(Echo, Body) ->
    Start = erlang:monotonic_time(nanosecond),
    Body = call(Echo, Body),
    erlang:monotonic_time(nanosecond) - Start.

many(Echo, Callers, Time) ->
    Body = binary:copy(<<7>>, 64),
    Start = erlang:monotonic_time(millisecond) + Time,
    Me = self(),
    [spawn_link(fun() -> Me ! {done, again(Echo, Body, Start, Start + Time, 0)} end) || _ <- lists:seq(1, Callers)],
    Done = lists:sum([receive {done, Count} -> Count end || _ <- lists:seq(1, Callers)]),
    Done * 1000 / Time.

again(Echo, Body, Start, End, Done) ->
    call(Echo, Body),
    case erlang:monotonic_time(millisecond) of
        Now when Now >= End -> Done;
        Now when Now >= Start -> again(Echo, Body, Start, End, Done + 1);
        _ -> again(Echo, Body, Start, End, Done)
    end.
