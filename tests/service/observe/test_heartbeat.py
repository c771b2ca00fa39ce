"""How long the event loop stood still, replayed in times that are passed in."""

from service.observe.heartbeat import BEAT_S, WINDOW_S, Heartbeat


def beating(heartbeat: Heartbeat, from_s: float, to_s: float) -> float:
    now_s = from_s
    while now_s < to_s:
        heartbeat.beat(now_s)
        now_s += BEAT_S
    return now_s


def test_a_loop_that_beats_has_no_gap() -> None:
    heartbeat = Heartbeat(0.0)
    now_s = beating(heartbeat, 0.0, 3 * WINDOW_S)
    assert heartbeat.longest_gap_s(now_s) < BEAT_S / 10
    assert heartbeat.gap_s(now_s + BEAT_S / 2) < BEAT_S


def test_a_gap_is_told_while_it_lasts_and_for_a_window_after() -> None:
    heartbeat = Heartbeat(0.0)
    now_s = beating(heartbeat, 0.0, 10.0)
    assert heartbeat.gap_s(now_s + 5.0) > 4.8
    assert heartbeat.longest_gap_s(now_s + 5.0) > 4.8
    heartbeat.beat(now_s + 5.0)
    assert heartbeat.gap_s(now_s + 5.0) == 0.0
    told_until_s = beating(heartbeat, now_s + 5.0, now_s + 5.0 + WINDOW_S)
    assert heartbeat.longest_gap_s(told_until_s) > 4.8
    forgotten_s = beating(heartbeat, told_until_s, told_until_s + 2 * WINDOW_S)
    assert heartbeat.longest_gap_s(forgotten_s) < BEAT_S / 10
