(* Lengths made of ReLUs: a vector is turned into a thinner and thinner wedge around the axis, where its first coordinate is
   nearly its length; and what is lost if every ReLU is a little off. *)
Require Import Reals Lra Lia Psatz List Arith Interval.Tactic.
Require Import Transformula.Transformer Transformula.Attention.
Import ListNotations.
Open Scope R_scope.

(* After n folds the vector is re + i im, a sum of 4 + n units w_j along the angles. *)
Fixpoint angle (n j : nat) : R :=
  match n with
  | O => if (j <? 2)%nat then - (PI / 4) else PI / 4
  | S m => if (j =? 4 + m)%nat then PI / 2 - PI / 2 ^ (m + 3) else - angle m j - PI / 2 ^ (m + 3)
  end.
Definition factor (j : nat) : R := if (j <? 4)%nat then 1 else 2.
Definition units (n : nat) : list nat := seq 0 (4 + n).
Definition re (n : nat) (w : nat -> R) : R := sum (map (fun j => factor j * cos (angle n j) * w j) (units n)).
Definition im (n : nat) (w : nat -> R) : R := sum (map (fun j => factor j * sin (angle n j) * w j) (units n)).
Definition folded (a b : R) (n : nat) (w : nat -> R) : Prop :=
  w 0%nat = Rmax 0 a /\ w 1%nat = Rmax 0 (- a) /\ w 2%nat = Rmax 0 b /\ w 3%nat = Rmax 0 (- b) /\
  forall k, (k < n)%nat -> w (4 + k)%nat = Rmax 0 (im k w).

Lemma units_S n : units (S n) = units n ++ [4 + n]%nat.
Proof. unfold units. replace (4 + S n)%nat with (S (4 + n)) by lia. now rewrite seq_S. Qed.
Lemma old_unit n j : In j (units n) -> (j =? 4 + n)%nat = false.
Proof. intros H. apply in_seq in H. apply Nat.eqb_neq. lia. Qed.
Lemma new_factor n : factor (4 + n) = 2.
Proof. reflexivity. Qed.
Lemma re_S n w : re (S n) w = cos (PI / 2 ^ (n + 3)) * re n w + sin (PI / 2 ^ (n + 3)) * (2 * w (4 + n)%nat - im n w).
Proof.
  unfold re, im. rewrite units_S, map_app, sum_app. cbn [map sum angle]. rewrite Nat.eqb_refl, new_factor, cos_shift.
  rewrite (sum_ext _ (fun j => cos (PI / 2 ^ (n + 3)) * (factor j * cos (angle n j) * w j) +
    - sin (PI / 2 ^ (n + 3)) * (factor j * sin (angle n j) * w j))).
  - rewrite sum_plus, !sum_scale. ring.
  - intros j I. rewrite (old_unit n j I). replace (- angle n j - PI / 2 ^ (n + 3)) with (- (angle n j + PI / 2 ^ (n + 3))) by ring.
    rewrite cos_neg, cos_plus. ring.
Qed.
Lemma im_S n w : im (S n) w = cos (PI / 2 ^ (n + 3)) * (2 * w (4 + n)%nat - im n w) - sin (PI / 2 ^ (n + 3)) * re n w.
Proof.
  unfold re, im. rewrite units_S, map_app, sum_app. cbn [map sum angle]. rewrite Nat.eqb_refl, new_factor, sin_shift.
  rewrite (sum_ext _ (fun j => - cos (PI / 2 ^ (n + 3)) * (factor j * sin (angle n j) * w j) +
    - sin (PI / 2 ^ (n + 3)) * (factor j * cos (angle n j) * w j))).
  - rewrite sum_plus, !sum_scale. ring.
  - intros j I. rewrite (old_unit n j I). replace (- angle n j - PI / 2 ^ (n + 3)) with (- (angle n j + PI / 2 ^ (n + 3))) by ring.
    rewrite sin_neg, sin_plus. ring.
Qed.

(* One fold: a vector within twice the angle is turned to within the angle. *)
Lemma turned c s x y l : c * c + s * s = 1 -> 0 < c -> 0 <= s -> 0 <= y -> 0 <= l -> x * x + y * y = l * l ->
  (1 - 2 * (s * s)) * l <= x -> c * l <= c * x + s * y.
Proof.
  intros U C S Y L N X. assert (x <= l) by nra. assert (P : 0 <= l - x) by lra.
  assert (Q : y * y = (l - x) * (l + x)) by lra.
  assert (R : c * (l - x) * (c * (l - x)) <= s * y * (s * y)).
  { replace (s * y * (s * y)) with (s * s * ((l - x) * (l + x))) by (rewrite <- Q; ring).
    replace (c * (l - x) * (c * (l - x))) with (c * c * ((l - x) * (l - x))) by ring.
    assert (0 <= (l - x) * (s * s * (l + x) - c * c * (l - x))) by (apply Rmult_le_pos; nra). lra. }
  assert (c * (l - x) <= s * y); [|lra].
  assert (0 <= s * y) by nra. assert (0 <= c * (l - x)) by nra. nra.
Qed.
Lemma relu_abs y : 2 * Rmax 0 y - y = Rabs y.
Proof. unfold Rmax, Rabs. destruct (Rle_dec 0 y), (Rcase_abs y); lra. Qed.
Lemma turn_size n : 0 < PI / 2 ^ (n + 2) <= PI / 4.
Proof.
  pose proof PI_RGT_0. assert (1 <= 2 ^ n) by (apply pow_R1_Rle; lra). rewrite pow_add. simpl. split.
  - apply Rdiv_lt_0_compat; lra.
  - unfold Rdiv. apply Rmult_le_compat_l; [lra|]. apply Rinv_le_contravar; lra.
Qed.
Lemma turn_trig n : 0 < cos (PI / 2 ^ (n + 2)) /\ 0 < sin (PI / 2 ^ (n + 2)).
Proof. pose proof (turn_size n). pose proof PI_RGT_0. split; [apply cos_gt_0 | apply sin_gt_0]; lra. Qed.
Lemma circle t : cos t * cos t + sin t * sin t = 1.
Proof. pose proof (sin2_cos2 t). unfold Rsqr in *. lra. Qed.
Lemma half_turn n : cos (PI / 2 ^ (n + 2)) = 1 - 2 * (sin (PI / 2 ^ (n + 3)) * sin (PI / 2 ^ (n + 3))).
Proof.
  replace (PI / 2 ^ (n + 2)) with (2 * (PI / 2 ^ (n + 3))) by (rewrite !pow_add; field; apply pow_nonzero; lra).
  rewrite cos_2a_sin. ring.
Qed.
Theorem fold_length a b n w : folded a b n w ->
  re n w * re n w + im n w * im n w = a * a + b * b /\ cos (PI / 2 ^ (n + 2)) * sqrt (a * a + b * b) <= re n w.
Proof.
  set (l := sqrt (a * a + b * b)). assert (L : 0 <= l) by apply sqrt_pos.
  assert (LL : l * l = a * a + b * b) by (apply sqrt_sqrt; nra).
  induction n as [|n IH]; intros (W0 & W1 & W2 & W3 & W).
  - set (c := cos (PI / 4)). pose proof (circle (PI / 4)) as U. pose proof (turn_trig 0) as [C S].
    replace (PI / 2 ^ (0 + 2)) with (PI / 4) in * by (simpl; field). fold c in C |- *.
    assert (K : sin (PI / 4) = c) by (unfold c; rewrite sin_PI4, cos_PI4; reflexivity). fold c in U. rewrite K in U.
    assert (A : w 0%nat + w 1%nat = Rabs a) by (rewrite W0, W1; unfold Rmax, Rabs; destruct (Rle_dec 0 a), (Rle_dec 0 (-a)), (Rcase_abs a); lra).
    assert (B : w 2%nat + w 3%nat = Rabs b) by (rewrite W2, W3; unfold Rmax, Rabs; destruct (Rle_dec 0 b), (Rle_dec 0 (-b)), (Rcase_abs b); lra).
    assert (RE : re 0 w = c * (Rabs a + Rabs b)).
    { unfold re. cbn [units plus seq map sum angle Nat.ltb Nat.leb]. unfold factor. cbn [Nat.ltb Nat.leb]. rewrite !cos_neg. fold c. rewrite <- A, <- B. ring. }
    assert (IM : im 0 w = c * (Rabs b - Rabs a)).
    { unfold im. cbn [units plus seq map sum angle Nat.ltb Nat.leb]. unfold factor. cbn [Nat.ltb Nat.leb]. rewrite !sin_neg, K, <- A, <- B. ring. }
    assert (A2 : Rabs a * Rabs a = a * a) by (pose proof (Rsqr_abs a); unfold Rsqr in *; lra).
    assert (B2 : Rabs b * Rabs b = b * b) by (pose proof (Rsqr_abs b); unfold Rsqr in *; lra).
    pose proof (Rabs_pos a). pose proof (Rabs_pos b). rewrite RE, IM. split; [nra|]. apply Rmult_le_compat_l; [lra|]. nra.
  - destruct IH as [N X]; [repeat split; auto|]. rewrite (half_turn n) in X.
    pose proof (turn_trig (S n)) as [C P]. replace (S n + 2)%nat with (n + 3)%nat in * by lia.
    rewrite re_S, im_S, (W n) by lia. rewrite relu_abs. pose proof (circle (PI / 2 ^ (n + 3))) as U.
    assert (Y2 : Rabs (im n w) * Rabs (im n w) = im n w * im n w) by (pose proof (Rsqr_abs (im n w)); unfold Rsqr in *; lra).
    set (c := cos (PI / 2 ^ (n + 3))) in *. set (s := sin (PI / 2 ^ (n + 3))) in *. set (x := re n w) in *. set (y := Rabs (im n w)) in *.
    split.
    + replace ((c * x + s * y) * (c * x + s * y) + (c * y - s * x) * (c * y - s * x)) with ((c * c + s * s) * (x * x + y * y)) by ring.
      rewrite U, Y2. lra.
    + apply (turned c s x y l); try lra. apply Rabs_pos.
Qed.

(* Units that are a little off: coefficients within d of theirs, arguments within e. *)
Definition size (n : nat) (v : nat -> R) : R := sum (map (fun j => factor j * Rabs (v j)) (units n)).
Lemma sum_le {A} (f g : A -> R) l : (forall x, In x l -> f x <= g x) -> sum (map f l) <= sum (map g l).
Proof. induction l; simpl; intros H; [lra|]. pose proof (H a (or_introl eq_refl)). specialize (IHl (fun x I => H x (or_intror I))). lra. Qed.
Lemma sum_abs {A} (f : A -> R) l : Rabs (sum (map f l)) <= sum (map (fun x => Rabs (f x)) l).
Proof. induction l; simpl; [rewrite Rabs_R0; lra|]. eapply Rle_trans; [apply Rabs_triang|]. lra. Qed.
Lemma sum_same c k s : sum (map (fun _ : nat => c) (seq s k)) = c * INR k.
Proof. revert s. induction k as [|k IH]; intros s; [simpl; ring|]. rewrite S_INR. cbn [seq map sum]. rewrite IH. ring. Qed.
Lemma factor_pos j : 1 <= factor j.
Proof. unfold factor. destruct (j <? 4)%nat; lra. Qed.
(* A sum with given coefficients h against one with coefficients factor * t, at units w and v. *)
Lemma near_sum n (h t w v : nat -> R) d m : 0 <= d -> (forall j, In j (units n) -> Rabs (h j - factor j * t j) <= d /\ Rabs (t j) <= 1 /\ Rabs (v j) <= m) ->
  Rabs (sum (map (fun j => h j * w j) (units n)) - sum (map (fun j => factor j * t j * v j) (units n))) <=
  (1 + d) * size n (fun j => w j - v j) + d * m * (4 + INR n).
Proof.
  intros D H. unfold Rminus at 1. rewrite <- (Rmult_1_l (sum (map (fun j => factor j * t j * v j) _))), Ropp_mult_distr_l, <- sum_scale, <- sum_plus.
  eapply Rle_trans; [apply sum_abs|]. unfold size. rewrite <- sum_scale.
  assert (C : d * m * (4 + INR n) = sum (map (fun _ => d * m) (units n))).
  { unfold units. rewrite sum_same, plus_INR. simpl (INR 4). ring. }
  rewrite C, <- sum_plus. apply sum_le. intros j I. destruct (H j I) as (Hh & Ht & Hv). pose proof (factor_pos j) as F.
  match goal with |- Rabs ?x <= _ => replace x with
    ((h j - factor j * t j) * v j + (h j - factor j * t j) * (w j - v j) + factor j * t j * (w j - v j)) by ring end.
  pose proof (Rabs_pos (w j - v j)) as P. pose proof (Rabs_pos (h j - factor j * t j)). pose proof (Rabs_pos (v j)). pose proof (Rabs_pos (t j)).
  eapply Rle_trans; [apply Rabs_triang|]. eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang|]. rewrite !Rabs_mult, (Rabs_pos_eq (factor j)) by lra.
  assert (Rabs (h j - factor j * t j) * Rabs (v j) <= d * m) by (apply Rmult_le_compat; auto).
  assert (Rabs (h j - factor j * t j) * Rabs (w j - v j) <= d * (factor j * Rabs (w j - v j))) by (apply Rmult_le_compat; nra).
  assert (factor j * Rabs (t j) * Rabs (w j - v j) <= factor j * Rabs (w j - v j)) by (apply Rmult_le_compat_r; nra). nra.
Qed.

(* Of units w the folded ones v are near: each new unit is off by what its sum is off by. *)
Fixpoint growth (d m e : R) (n : nat) : R :=
  match n with O => 4 * e | S k => (3 + 2 * d) * growth d m e k + 2 * (d * m * (4 + INR k) + e) end.
Fixpoint exactly (a b : R) (n : nat) : nat -> R :=
  match n with
  | O => fun j => match j with 0 => Rmax 0 a | 1 => Rmax 0 (- a) | 2 => Rmax 0 b | _ => Rmax 0 (- b) end%nat
  | S k => fun j => if (j =? 4 + k)%nat then Rmax 0 (im k (exactly a b k)) else exactly a b k j
  end.
Lemma same_sums k v v' : (forall j, In j (units k) -> v j = v' j) -> im k v = im k v'.
Proof. intros H. unfold im. apply sum_ext. intros j I. now rewrite H. Qed.
Lemma exactly_folded a b n : folded a b n (exactly a b n).
Proof.
  induction n as [|n (H0 & H1 & H2 & H3 & H)]; [repeat split; intros; lia|]. repeat split; auto. intros k L. cbn [exactly].
  assert (E : forall i, (i <= n)%nat -> im i (fun j => if (j =? 4 + n)%nat then Rmax 0 (im n (exactly a b n)) else exactly a b n j) = im i (exactly a b n)).
  { intros i Li. apply same_sums. intros j I. apply in_seq in I. destruct (Nat.eqb_spec j (4 + n)); [lia|reflexivity]. }
  rewrite E by lia. destruct (Nat.eqb_spec (4 + k) (4 + n)) as [F|F]; [replace k with n by lia; reflexivity|]. apply H. lia.
Qed.
Lemma length_bounds a b n w m : folded a b n w -> sqrt (a * a + b * b) <= m -> Rabs (im n w) <= m /\ re n w <= sqrt (a * a + b * b).
Proof.
  intros H M. destruct (fold_length a b n w H) as [N X]. set (l := sqrt (a * a + b * b)) in *.
  assert (L : 0 <= l) by apply sqrt_pos. assert (LL : l * l = a * a + b * b) by (apply sqrt_sqrt; nra).
  split; [apply Rabs_le|]; nra.
Qed.
Lemma relu_apart x y : Rabs (Rmax 0 x - Rmax 0 y) <= Rabs (x - y).
Proof. unfold Rmax. destruct (Rle_dec 0 x), (Rle_dec 0 y); unfold Rabs; repeat destruct Rcase_abs; lra. Qed.
Lemma relu_size x m : Rabs x <= m -> Rabs (Rmax 0 x) <= m.
Proof. intros H. unfold Rmax. destruct (Rle_dec 0 x); [exact H|]. rewrite Rabs_R0. pose proof (Rabs_pos x). lra. Qed.
Lemma folded_less a b n k w : folded a b n w -> (k <= n)%nat -> folded a b k w.
Proof. intros (H0 & H1 & H2 & H3 & H) L. repeat split; auto. intros i Li. apply H. lia. Qed.
Lemma folded_size a b n w m j : folded a b n w -> sqrt (a * a + b * b) <= m -> In j (units n) -> Rabs (w j) <= m.
Proof.
  intros F M I. pose proof F as (H0 & H1 & H2 & H3 & H). assert (S : Rabs a <= m /\ Rabs b <= m).
  { split; eapply Rle_trans; try exact M; rewrite <- sqrt_Rsqr_abs; apply sqrt_le_1_alt; unfold Rsqr; nra. }
  destruct S as [A B]. apply in_seq in I.
  destruct j as [|[|[|[|k]]]]; [rewrite H0 | rewrite H1 | rewrite H2 | rewrite H3 | change (S (S (S (S k)))) with (4 + k)%nat; rewrite (H k) by lia]; apply relu_size; rewrite ?Rabs_Ropp; auto.
  apply (length_bounds a b k w m); [apply (folded_less a b n)|]; auto. lia.
Qed.
Definition dot (h : list R) (w : nat -> R) (n : nat) : R := sum (map (fun j => nth j h 0 * w j) (units n)).
Lemma near_folds a b n w v hs d m e : 0 <= d -> 0 <= e -> sqrt (a * a + b * b) <= m -> folded a b n v ->
  (forall j, In j (units 0) -> Rabs (w j - v j) <= e) ->
  (forall k, (k < n)%nat -> Rabs (w (4 + k)%nat - Rmax 0 (dot (nth k hs []) w k)) <= e) ->
  (forall k, (k < n)%nat -> forall j, In j (units k) -> Rabs (nth j (nth k hs []) 0 - factor j * sin (angle k j)) <= d) ->
  size n (fun j => w j - v j) <= growth d m e n.
Proof.
  intros D E M F S W C. assert (G : forall k, (k <= n)%nat -> size k (fun j => w j - v j) <= growth d m e k); [|apply G; lia].
  induction k as [|k IH]; intros L.
  - unfold size. cbn [growth]. replace (4 * e) with (sum (map (fun _ : nat => e) (units 0))) by (unfold units; rewrite sum_same; simpl; ring).
    apply sum_le. intros j I. specialize (S j I). replace (factor j) with 1; [lra|]. apply in_seq in I. unfold factor.
    destruct (Nat.ltb_spec j 4); [reflexivity|lia].
  - specialize (IH ltac:(lia)). unfold size in *. rewrite units_S, map_app, sum_app. cbn [map sum growth]. rewrite new_factor.
    assert (T : Rabs (dot (nth k hs []) w k - im k v) <= (1 + d) * size k (fun j => w j - v j) + d * m * (4 + INR k)).
    { apply near_sum; [exact D|]. intros j I. split; [apply C; [lia|exact I]|]. split; [apply Rabs_le, SIN_bound|].
      apply (folded_size a b n v); auto. apply in_seq in I. apply in_seq. lia. }
    specialize (W k ltac:(lia)). pose proof F as (_ & _ & _ & _ & V). rewrite (V k) by lia.
    assert (Rabs (w (4 + k)%nat - Rmax 0 (im k v)) <= e + Rabs (dot (nth k hs []) w k - im k v)).
    { replace (w (4 + k)%nat - Rmax 0 (im k v)) with ((w (4 + k)%nat - Rmax 0 (dot (nth k hs []) w k)) + (Rmax 0 (dot (nth k hs []) w k) - Rmax 0 (im k v))) by ring.
      eapply Rle_trans; [apply Rabs_triang|]. pose proof (relu_apart (dot (nth k hs []) w k) (im k v)). lra. }
    unfold size in T. assert (d * sum (map (fun j => factor j * Rabs (w j - v j)) (units k)) <= d * growth d m e k) by (apply Rmult_le_compat_l; auto). lra.
Qed.
Lemma one_of_sum n v j : In j (units n) -> Rabs (v j) <= size n v.
Proof.
  unfold size. assert (P : forall l, 0 <= sum (map (fun i => factor i * Rabs (v i)) l)).
  { induction l as [|i l IH]; cbn [map sum]; [lra|]. pose proof (factor_pos i). pose proof (Rabs_pos (v i)). nra. }
  induction (units n) as [|i l IH]; intros I; [destruct I|]. cbn [map sum]. pose proof (factor_pos i). pose proof (Rabs_pos (v i)).
  specialize (P l). destruct I as [->|I]; [nra|]. specialize (IH I). nra.
Qed.
(* What the units measure, against the length. *)
Theorem measured a b n w hs g d m e : 0 <= d -> 0 <= e -> sqrt (a * a + b * b) <= m ->
  Rabs (w 0%nat - Rmax 0 a) <= e -> Rabs (w 1%nat - Rmax 0 (- a)) <= e -> Rabs (w 2%nat - Rmax 0 b) <= e -> Rabs (w 3%nat - Rmax 0 (- b)) <= e ->
  (forall k, (k < n)%nat -> Rabs (w (4 + k)%nat - Rmax 0 (dot (nth k hs []) w k)) <= e) ->
  (forall k, (k < n)%nat -> forall j, In j (units k) -> Rabs (nth j (nth k hs []) 0 - factor j * sin (angle k j)) <= d) ->
  (forall j, In j (units n) -> Rabs (nth j g 0 - factor j * cos (angle n j)) <= d) ->
  let q := 2 / (1 + cos (PI / 2 ^ (n + 2))) in
  (forall j, In j (units n) -> Rabs (w j) <= m + growth d m e n) /\
  Rabs (q * dot g w n - sqrt (a * a + b * b)) <= q * ((1 + d) * growth d m e n + d * m * (4 + INR n)) + (q - 1) * m.
Proof.
  intros D E M W0 W1 W2 W3 W C G q. set (v := exactly a b n). pose proof (exactly_folded a b n) as F. fold v in F.
  pose proof F as (V0 & V1 & V2 & V3 & _). pose proof (turn_trig n) as [P _]. set (c := cos (PI / 2 ^ (n + 2))) in *.
  assert (Q : q * (1 + c) = 2) by (unfold q; field; lra). assert (C1 : c <= 1) by apply COS_bound.
  assert (N : size n (fun j => w j - v j) <= growth d m e n).
  { apply (near_folds a b n w v hs); auto. intros j I. apply in_seq in I.
    destruct j as [|[|[|[|j]]]]; [rewrite V0 | rewrite V1 | rewrite V2 | rewrite V3 | lia]; assumption. }
  split.
  { intros j I. pose proof (folded_size a b n v m j F M I). pose proof (one_of_sum n (fun i => w i - v i) j I).
    replace (w j) with (v j + (w j - v j)) by ring. eapply Rle_trans; [apply Rabs_triang|]. simpl in *. lra. }
  assert (T : Rabs (dot g w n - re n v) <= (1 + d) * size n (fun j => w j - v j) + d * m * (4 + INR n)).
  { apply near_sum; [exact D|]. intros j I. split; [apply G; exact I|]. split; [apply Rabs_le, COS_bound|]. apply (folded_size a b n v); auto. }
  destruct (fold_length a b n v F) as [_ X]. fold c in X. destruct (length_bounds a b n v m F M) as [_ Y].
  set (l := sqrt (a * a + b * b)) in *. assert (L : 0 <= l) by apply sqrt_pos. assert (1 <= q) by nra.
  assert (d * size n (fun j => w j - v j) <= d * growth d m e n) by (apply Rmult_le_compat_l; auto).
  assert (R : Rabs (q * re n v - l) <= (q - 1) * l) by (apply Rabs_le; nra).
  replace (q * dot g w n - l) with (q * (dot g w n - re n v) + (q * re n v - l)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult, (Rabs_pos_eq q) by lra. nra.
Qed.
Lemma length_moved a b a' b' e f : - e <= a' - a <= e -> - f <= b' - b <= f ->
  - (e + f) <= sqrt (a' * a' + b' * b') - sqrt (a * a + b * b) <= e + f.
Proof.
  assert (T : forall x y x' y' r s, - r <= x' - x <= r -> - s <= y' - y <= s -> sqrt (x' * x' + y' * y') <= sqrt (x * x + y * y) + (r + s)).
  { intros x y x' y' r s X Y. set (l := sqrt (x * x + y * y)). assert (L : 0 <= l) by apply sqrt_pos.
    assert (LL : l * l = x * x + y * y) by (apply sqrt_sqrt; nra). rewrite <- (sqrt_square (l + (r + s))) by lra.
    apply sqrt_le_1_alt. assert (- l <= x <= l) by nra. assert (- l <= y <= l) by nra.
    assert (x' * x' <= x * x + 2 * l * r + r * r) by nra. assert (y' * y' <= y * y + 2 * l * s + s * s) by nra. nra. }
  intros A B. pose proof (T a b a' b' e f A B). pose proof (T a' b' a b e f ltac:(lra) ltac:(lra)). lra.
Qed.
Lemma coefficients_less (f : nat -> R) l d d' : (forall j, In j l -> Rabs (f j) <= d) -> d <= d' -> forall j, In j l -> Rabs (f j) <= d'.
Proof. intros H L j I. specialize (H j I). lra. Qed.
Ltac coefficient h := cbv [nth h factor angle Nat.eqb Nat.ltb Nat.leb Nat.add]; interval with (i_prec 130).
